from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmmiles import shell
from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan
from slurmmiles.sbatch import decode_plan, encode_plan, render
from slurmmiles.submit import agent_command, rendered

TEMPLATES = shipped("sbatch_templates")
CATALOG = Catalog((shipped("configs"),))
# Prints what srun was given, each word ended by a NUL, and then its environment in the same form.
FAKE_SRUN = """\
#!/bin/bash
printf '%s\\0' "$@" > "$OUT/argv"
env -0 > "$OUT/environ"
exit 3
"""
HOSTILE = "a b'c\"d;e$(touch pwned)`touch pwned`&|<>*?[x]\\ #~!{y}"


def planned(
    *settings: str, site: dict[str, Any] | None = None, recipe: str = "tiny", **request: Any
) -> Plan:
    r = CATALOG.recipe(recipe, settings)
    place = CATALOG.site("generic")
    place = type(place).model_validate({**place.model_dump(), **(site or {})})
    return make_plan(
        r,
        place,
        Request(**request),
        model=CATALOG.model("tiny") if r.model.facts else None,
        gpu=CATALOG.gpu("h200"),
    )


def run_script(text: str, folder: Path) -> tuple[int, list[str], dict[str, str]]:
    """The script's exit status, and the words and environment that it gives to srun."""
    (folder / "bin").mkdir()
    (folder / "bin" / "srun").write_text(FAKE_SRUN)
    (folder / "bin" / "srun").chmod(0o755)
    (folder / "job.sbatch").write_text(text)
    env = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "OUT": str(folder),
        "SLURM_JOB_ID": "77",
        "SLURM_CPUS_ON_NODE": "5",
    }
    ended = shell.run(["bash", str(folder / "job.sbatch")], env=env, cwd=folder)
    assert ended.stderr == ""
    words = (folder / "argv").read_bytes().split(b"\0")[:-1]
    given_ = dict(
        p.partition("=")[::2] for p in os.fsdecode((folder / "environ").read_bytes()).split("\0")
    )
    return ended.returncode, [os.fsdecode(w) for w in words], given_


def check(text: str, folder: Path) -> None:
    """bash reads the script, and shellcheck (where it is installed) has nothing to say about it."""
    path = folder / "checked.sbatch"
    path.write_text(text)
    assert shell.run(["bash", "-n", str(path)]).stderr == ""
    if shutil.which("shellcheck"):
        said = shell.run(["shellcheck", "--shell=bash", str(path)])
        assert said.stdout + said.stderr == ""


def directives(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#SBATCH")]


def test_the_script_gives_srun_the_agent_and_the_plan(tmp_path: Path) -> None:
    plan = planned(site={"python": "/opt/v/bin/python"}, nodes=2)
    code, words, env = run_script(rendered(plan, TEMPLATES, Path("/shared/runs")), tmp_path)
    agent = ["-u", "-m", "slurmmiles.agent", "--run-dir", "/shared/runs/tiny-77"]
    assert words[-6:] == ["/opt/v/bin/python", *agent]
    assert "--ntasks-per-node=1" in words and "--cpus-per-task=2" in words
    assert decode_plan(env["SLURMMILES_PLAN"]) == plan
    assert env["SLURMMILES_STARTED"].isdigit()
    assert code == 3  # exec: the step's status is the script's


def test_slurms_own_variable_is_expanded_and_nothing_else(tmp_path: Path) -> None:
    site = {"python": f"/opt/{HOSTILE}/python", "srun_args": [f"--comment={HOSTILE}", "$HOME"]}
    plan = planned(site=site, recipe="gate-check")
    _, words, _ = run_script(rendered(plan, TEMPLATES, Path(f"/r/{HOSTILE}")), tmp_path)
    assert "--cpus-per-task=5" in words
    assert words[-8:-6] == [f"--comment={HOSTILE}", "$HOME"]
    assert words[-6] == f"/opt/{HOSTILE}/python"
    assert words[-1] == f"/r/{HOSTILE}/gate-check-77"
    assert not (tmp_path / "pwned").exists()


def test_an_argument_cannot_hide_behind_slurms_variable(tmp_path: Path) -> None:
    plan = planned(site={"srun_args": ["-x;touch pwned;=$SLURM_CPUS_ON_NODE"]})
    _, words, _ = run_script(rendered(plan, TEMPLATES, Path("/r")), tmp_path)
    assert "-x;touch pwned;=5" in words
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("key", ["partition", "account", "qos", "constraint", "exclude", "mem"])
def test_a_hostile_request_stays_on_its_own_comment_line(tmp_path: Path, key: str) -> None:
    plan = planned(f"slurm.{key}={json.dumps(HOSTILE)}", f"description={json.dumps(HOSTILE)}")
    text = rendered(plan, TEMPLATES, Path("/r"))
    found = [line for line in directives(text) if line.startswith(f"#SBATCH --{key}=")]
    assert len(found) == 1
    assert unquoted(found[0].partition("=")[2]) == HOSTILE
    assert len(directives(text)) == len(plan.slurm.directives) + 1  # and --output
    check(text, tmp_path)
    run_script(text, tmp_path)
    assert not (tmp_path / "pwned").exists()


def unquoted(value: str) -> str:
    """As sbatch reads a value: a backslash escapes, quotes group, a bare space or # ends it."""
    out, quote, escaped = "", "", False
    for char in value:
        if escaped:
            out, escaped = out + char, False
        elif char == "\\":
            escaped = True
        elif quote:
            quote, out = ("", out) if char == quote else (quote, out + char)
        elif char in "\"'":
            quote = char
        elif char in " \t#":
            break
        else:
            out += char
    return out


def with_directives(values: list[str]) -> str:
    """A script that asks for a partition called by each of `values`, in turn."""
    plan = planned()
    slurm = plan.slurm.model_copy(update={"directives": tuple(("partition", v) for v in values)})
    return render(plan.model_copy(update={"slurm": slurm}), TEMPLATES, command=":", output="o")


printable = st.text(min_size=1, max_size=30).filter(str.isprintable)
quotes = st.text("'\"\\ #$`a", min_size=1, max_size=12)


@settings(max_examples=20)
@given(st.lists(printable | quotes, min_size=1, max_size=40))
def test_every_printable_value_comes_through(values: list[str]) -> None:
    found = [unquoted(line.partition("=")[2]) for line in directives(with_directives(values))]
    assert found == [*values, "o"]


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="Slurm's sbatch is not installed")
@settings(max_examples=20)
@given(st.lists(printable | quotes, min_size=1, max_size=40))
def test_sbatch_itself_reads_every_value_as_it_was_meant(
    tmp_path_factory: pytest.TempPathFactory, values: list[str]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=nowhere.invalid\n")
    # It says what it found, and stops at the option that it does not know, before it asks anyone.
    text = with_directives(values).replace(
        "#SBATCH --output", "#SBATCH --nonsense\n#SBATCH --output"
    )
    (folder / "job").write_text(text)
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    said = shell.run(["sbatch", "-vvv", str(folder / "job")], env=env).stderr
    found = re.findall(
        r'^sbatch: debug2: Found in script, argument "--partition=(.*)"$', said, re.M
    )
    assert found == values
    assert "unrecognized option" in said


def test_setup_lines_come_before_the_step_and_are_the_sites_shell(tmp_path: Path) -> None:
    plan = planned(site={"setup": ["module() { export LOADED=$2; }", "module load cuda"]})
    text = rendered(plan, TEMPLATES, Path("/r"))
    _, _, env = run_script(text, tmp_path)
    assert env["LOADED"] == "cuda"


def test_a_submitted_script_names_submitits_folder(tmp_path: Path) -> None:
    command = agent_command("/opt/a b/python", Path("/r/x y"), Path("/r/x y/submitit"))
    text = render(planned(), TEMPLATES, command=command, output="/r/x y/%j_0_log.out")
    assert '#SBATCH --output="/r/x y/%j_0_log.out"' in text
    _, words, _ = run_script(text, tmp_path)
    assert words[-8:] == [
        "/opt/a b/python",
        "-u",
        "-m",
        "slurmmiles.agent",
        "--run-dir",
        "/r/x y",
        "--submitit",
        "/r/x y/submitit",
    ]


def test_a_script_ends_with_a_newline_and_begins_with_bash(tmp_path: Path) -> None:
    text = rendered(planned(), TEMPLATES, Path("/r"))
    assert text.startswith("#!/bin/bash\n#") and text.endswith("\n") and not text.endswith("\n\n")
    check(text, tmp_path)


def test_the_python_of_the_command_is_used_where_the_site_names_none(tmp_path: Path) -> None:
    _, words, _ = run_script(rendered(planned(), TEMPLATES, Path("/r")), tmp_path)
    assert sys.executable in words


def test_the_plan_in_a_script_is_the_plan() -> None:
    for plan in (planned(), planned("env.A=${x}", recipe="gate-check", nodes=16, spares=2)):
        word = encode_plan(plan)
        assert re.fullmatch(r"[A-Za-z0-9+/=]+", word)
        assert decode_plan(word) == plan


def test_the_plan_of_the_most_nodes_fits_in_the_environment() -> None:
    word = encode_plan(planned(recipe="gate-check", nodes=8192))
    assert len(word) < 100_000  # Linux takes 131072 bytes for one variable (execve(2))
    assert decode_plan(word).nodes == 8192


@given(st.binary(max_size=100) | st.text(max_size=100))
def test_what_is_no_plan_is_bad_input(garbage: bytes | str) -> None:
    text = garbage if isinstance(garbage, str) else base64.b64encode(garbage).decode()
    packed = base64.b64encode(zlib.compress(text.encode(errors="replace"))).decode()
    for word in (text, packed):
        with pytest.raises(BadInput, match="plan cannot be read"):
            decode_plan(word)


def test_a_cut_or_swollen_plan_is_refused() -> None:
    whole = zlib.compress(planned().model_dump_json().encode())
    for data in (whole[:-10], zlib.compress(b" " * 50_000_000)):
        with pytest.raises(BadInput, match="cut off or too long"):
            decode_plan(base64.b64encode(data).decode())
