"""From a plan to the sbatch script. The only user of Jinja; a template holds no decision."""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from slurmmiles.planfile import Plan, SlurmPlan

INLINE_PLAN = "SLURMMILES_PLAN"
SAFE_EXPANSIONS = frozenset({"$SLURM_CPUS_ON_NODE"})
MAX_PLAN_BYTES = 16_000_000  # unpacked; a plan of 8192 nodes has less than a tenth of it


def render(
    plan: Plan,
    templates: Path,
    *,
    command: str,
    output: str,
    exports: Sequence[str] = (),
    template: str = "base.sbatch.j2",
) -> str:
    """The script of `plan`; `command` is the step's shell text, `output` Slurm's log pattern."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # this is shell, not HTML: each value below is quoted by shlex
    )
    return environment.get_template(template).render(
        title=f"slurmmiles: {plan.recipe} on {plan.allocated_nodes} node(s), site {plan.site}",
        directives=[*_directives(plan.slurm), f"--output={_directive_value(output)}"],
        setup=plan.slurm.setup,
        exports=list(exports),
        srun_args=" ".join(_word(arg) for arg in plan.slurm.srun_args),
        command=command,
    )


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
    """The plan that `encode_plan` wrote; raises ValueError on anything else."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(base64.b64decode(word, validate=True), MAX_PLAN_BYTES)
    except zlib.error as error:
        raise ValueError(f"not a plan: {error}") from error
    if not unpacker.eof:
        raise ValueError("not a plan: it is cut off or too long")
    return Plan.model_validate_json(text)
