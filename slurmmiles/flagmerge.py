"""One owner for each flag: the recipe's own `flags` against what facts and sections decide; pure.

A flag of `flags:` that is decided elsewhere must say the same. It may replace a model fact that no
arithmetic of the plan rests on. Left out (null, false, empty), it must not be decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurmmiles.errors import BadInput
from slurmmiles.miles_flags import Flag, Value, number
from slurmmiles.planfile import Difference
from slurmmiles.recipe import FlagValue

FORM = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_-]*")
SECRET = re.compile(r"(api-key|wandb-key|secret|password|auth-token|hf-token)$")
# SGLang's second names (server_args); miles puts `sglang-` before both.
ALIASES = {
    "--sglang-data-parallel-size": "--sglang-dp-size",
    "--sglang-expert-parallel-size": "--sglang-ep-size",
    "--sglang-ep": "--sglang-ep-size",
}
# Model facts that layout, memory and FLOPs are computed from.
COUNTED = frozenset(
    f"--{name}"
    for name in (
        "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups",
        "group-query-attention", "kv-channels", "vocab-size", "make-vocab-size-divisible-by",
        "untie-embeddings-and-output-weights", "swiglu", "num-experts", "moe-router-topk",
        "moe-ffn-hidden-size", "moe-shared-expert-intermediate-size", "moe-latent-size",
        "custom-model-provider-path",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Merged:
    """The model's flags, all others, and the facts that the recipe's flags replace or leave out."""

    facts: tuple[tuple[str, Value], ...]
    others: tuple[tuple[str, Value], ...]
    differs: tuple[Difference, ...]


def merged(
    facts: Iterable[Flag], decided: Iterable[Flag], given: Mapping[str, FlagValue]
) -> Merged:
    """Every flag once, in the order given; BadInput names both sides of a contradiction."""
    model = {flag.name: flag for flag in facts if flag.value is not None}
    sections = {flag.name: flag for flag in decided}
    extra: dict[str, Value] = {}
    differs: list[Difference] = []
    for written, raw in given.items():
        name, value = _checked(written), as_value(raw)
        if name in sections:
            emitted = _agrees(written, value, sections[name])
            if emitted is not None:
                extra[name] = emitted
        elif name in model:
            change = _replaced(written, value, model[name])
            if change:
                differs.append(change)
                del model[name]
                extra[name] = value
        else:
            _refuse_short(name, sections)
            _refuse_twice(written, name, value, extra)
            extra[name] = value
    rest = [*((f.name, f.value) for f in sections.values()), *extra.items()]
    return Merged(
        tuple((f.name, f.value) for f in model.values()),
        tuple((name, value) for name, value in rest if value is not None),
        tuple(differs),
    )


def as_value(raw: FlagValue) -> Value:
    """A recipe's value as the command has it: None is left out, True stands alone."""
    if raw is None or raw is False or raw == "" or raw == []:
        return None
    if raw is True:
        return True
    if isinstance(raw, list):
        return tuple(number(item) for item in raw)
    return number(raw)


def _checked(written: str) -> str:
    if not FORM.fullmatch(written):
        raise BadInput(
            f"{written!r} is not a flag", where="flags", fix="write it as --name, without its value"
        )
    if SECRET.search(written):
        raise BadInput(
            "a secret in a flag stands in plan.json and in every process list",
            where=f"flags.{written}",
            fix="export it in the environment, such as WANDB_API_KEY",
        )
    return ALIASES.get(written, written)


def _agrees(written: str, value: Value, flag: Flag) -> Value:
    """None when the flag is there already; the value when leaving it out meant the same."""
    if same(value, flag.value):
        return None
    if flag.value is None and flag.implied is not None and same(value, flag.implied):
        return value
    raise BadInput(
        f"{written} is {shown(value)} and {flag.key} decides {shown(flag.value)}",
        where=f"flags.{written}",
        fix=f"change {flag.key} and leave the flag out",
    )


def _replaced(written: str, value: Value, fact: Flag) -> Difference | None:
    """The change of a model fact; BadInput for one that the plan's arithmetic rests on."""
    if same(value, fact.value):
        return None
    if fact.name in COUNTED:
        raise BadInput(
            f"{written} is {shown(value)} and the model's facts say {shown(fact.value)}, from which"
            " the plan computes layout and memory",
            where=f"flags.{written}",
            fix="name another model.facts, or leave the flag out",
        )
    return Difference(
        flag=fact.name,
        miles=shown(fact.value),
        ours=None if value is None else shown(value),
        why="the recipe's flags say so",
    )


def _refuse_short(name: str, sections: Mapping[str, Flag]) -> None:
    """argparse takes a unique beginning for the whole flag: two spellings of one would race."""
    for flag in sections.values():
        if flag.value is not None and flag.name.startswith(name):
            raise BadInput(
                f"{name} is short for {flag.name}, which {flag.key} decides",
                where=f"flags.{name}",
                fix=f"change {flag.key} and leave the flag out",
            )


def _refuse_twice(written: str, name: str, value: Value, extra: Mapping[str, Value]) -> None:
    if name in extra and not same(extra[name], value):
        raise BadInput(
            f"{written} is {shown(value)} and its other spelling {name} is {shown(extra[name])}",
            where=f"flags.{written}",
            fix="give it once",
        )


def same(one: Value, other: Value) -> bool:
    """Equal as argparse would read them: 1e-6 and 0.000001 are one number."""
    if isinstance(one, str) and isinstance(other, str):
        try:
            return float(one) == float(other)
        except ValueError:
            return one == other
    return one == other


def shown(value: Value) -> str:
    """A value in a sentence."""
    if value is None:
        return "left out"
    if value is True:
        return "given"
    return " ".join(value) if isinstance(value, tuple) else value
