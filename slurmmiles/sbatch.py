"""From a plan to the sbatch script. The only user of Jinja; a template holds no decision."""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound
from jinja2.exceptions import TemplateError, TemplateSyntaxError

from slurmmiles.containers import RUNS
from slurmmiles.errors import BadInput, did_you_mean
from slurmmiles.planfile import Plan, SlurmPlan

INLINE_PLAN = "SLURMMILES_PLAN"
ENDING = ".sbatch.j2"
Folders = Path | Sequence[Path]
SAFE_EXPANSIONS = frozenset({"$SLURM_CPUS_ON_NODE"})
MAX_PLAN_BYTES = 16_000_000  # unpacked; a plan of 8192 nodes has less than a tenth of it


def render(
    plan: Plan,
    templates: Folders,
    *,
    command: str,
    output: str,
    exports: Sequence[str] = (),
    runs: str = "",
) -> str:
    """The script of `plan`; `command` is the step's shell text, `output` Slurm's log pattern.

    `templates` are folders, the first one that has the plan's template wins; `runs` is the
    directory of runs, for a container's mounts. BadInput for a template that is not there or wrong.
    """
    folders = [templates] if isinstance(templates, Path) else list(templates)
    environment = Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # this is shell, not HTML: each value below is quoted by shlex
    )
    box, name = plan.slurm.container, plan.slurm.template
    options = [word.replace(RUNS, runs) for word in (box.options if box else ())]
    try:
        return environment.get_template(f"{name}{ENDING}").render(
            title=f"slurmmiles: {plan.recipe} on {plan.allocated_nodes} node(s), site {plan.site}",
            directives=[*_directives(plan.slurm), f"--output={_directive_value(output)}"],
            setup=plan.slurm.setup,
            venv=shlex.quote(plan.slurm.venv),
            exports=list(exports),
            srun_args=" ".join(_word(arg) for arg in plan.slurm.srun_args),
            image=shlex.quote(box.image) if box else "",
            container_options="".join(f" {shlex.quote(word)}" for word in options),
            command=command,
        )
    except TemplateError as error:
        raise _template_fault(error, name, environment, folders) from error


def _template_fault(
    error: TemplateError, name: str, environment: Environment, folders: Sequence[Path]
) -> BadInput:
    where = f"template {name}"
    if isinstance(error, TemplateNotFound):
        known = [t.removesuffix(ENDING) for t in environment.list_templates() if t.endswith(ENDING)]
        looked = ", ".join(map(str, folders))
        return BadInput(
            f"there is no template {error.name!r} in {looked}",
            where=where,
            fix=did_you_mean(str(error.name).removesuffix(ENDING), known),
        )
    if isinstance(error, TemplateSyntaxError):
        where = f"{error.filename or name}:{error.lineno}"
    return BadInput(f"the template is wrong: {error.message}", where=where, fix="mend it")


def _directives(request: SlurmPlan) -> list[str]:
    return [
        f"--{name}" if value is None else f"--{name}={_directive_value(value)}"
        for name, value in request.directives
    ]


def _directive_value(value: str) -> str:
    """A value as sbatch reads it: double quotes group words, a backslash escapes (sbatch,
    _get_next_opt).
    """
    if value and not any(c in value for c in " \t\"'\\#"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _word(arg: str) -> str:
    """An srun argument quoted for the shell, except Slurm's variables that it must expand."""
    name, equals, value = arg.partition("=")
    if equals and value in SAFE_EXPANSIONS:
        return f'{shlex.quote(name)}="{value}"'
    return shlex.quote(arg)


def encode_plan(plan: Plan) -> str:
    """The plan as one word for an environment variable, so that a rendered script needs no other
    file.
    """
    text = json.dumps(plan.model_dump(mode="json"), separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def decode_plan(word: str) -> Plan:
    """The plan that `encode_plan` wrote; BadInput on anything else."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(base64.b64decode(word, validate=True), MAX_PLAN_BYTES)
        if not unpacker.eof:
            raise ValueError("it is cut off or too long")
        return Plan.model_validate_json(text)
    except (ValueError, zlib.error) as error:
        raise BadInput(
            f"the script's plan cannot be read ({str(error).splitlines()[0]})",
            where=INLINE_PLAN,
            fix="render the script again, with this version",
        ) from None
