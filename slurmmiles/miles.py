"""The command of a miles run: train.py with every flag once, or miles' own launcher; pure.

Each flag has one owner. The model's facts and the recipe's sections decide theirs; `flags:` reaches
every other flag, and may repeat a decided one only with the same value. Facts: radixark/miles at
31f1ca96, `miles/utils/arguments.py` (what --load and --ref-load do) and its launchers in scripts/.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from slurmmiles.errors import BadInput
from slurmmiles.flagmerge import Merged, as_value, merged
from slurmmiles.layouts import Shape
from slurmmiles.miles_flags import Flag, Value, model_flags, section_flags
from slurmmiles.models import ModelFacts
from slurmmiles.parameters import count_parameters
from slurmmiles.planfile import Difference, EnvValue
from slurmmiles.recipe import FlagValue, Recipe

FIRST_WAIT_S = 600
"""Seconds until a rollout engine's first health check where first kernels compile for minutes:
miles' platform page names this value, and its default is 0."""
FIRST_WAIT = "--rollout-health-check-first-wait"
ADAM_AND_WEIGHT_BYTES = 14
"""Of one parameter in a checkpoint: fp32 master and two moments, and the bf16 weight."""
# Flags of miles' launchers that make a run forget where it was.
FORGETFUL = {
    "--no-load-optim": "a resumed run must load Adam's states; the first start has none to load",
    "--no-load-rng": "a resumed run must load the random state; the first start has none to load",
    "--finetune": "it starts at rollout 0, whatever was loaded; miles sets it where nothing was",
}


@dataclass(frozen=True, slots=True)
class Ask:
    """What a miles command is made for; `checkpoints` may hold placeholders."""

    recipe: Recipe
    model: ModelFacts
    shape: Shape
    checkpoints: str
    wandb: bool = False
    """A key is in the environment, where it stays."""


@dataclass(frozen=True, slots=True)
class Command:
    """Words of the command, and where it is not miles' own."""

    argv: tuple[str, ...]
    differs: tuple[Difference, ...] = ()


def train_command(ask: Ask) -> Command:
    """`python {miles}/train.py FLAGS`; BadInput when two settings contradict each other."""
    merged_flags, differs = _flags(ask)
    words = (*words_of(merged_flags.facts), *words_of(merged_flags.others))
    return Command(("{python}", "{miles}/train.py", *words), differs)


def script_command(ask: Ask, *, megatron: bool) -> Command:
    """miles' own launcher on our Ray cluster; our flags follow its own in --extra-args and win.

    argparse takes the last of two values, so what a launcher hard-codes does not race ours.
    """
    recipe = ask.recipe
    _refuse_script(ask)
    merged_flags, differs = _flags(ask)
    for part in merged_flags.differs:
        if part.ours is None:
            raise BadInput(
                f"{recipe.driver.script} passes {part.flag} itself, so it cannot be left out",
                where=f"flags.{part.flag}",
                fix="use entry: train",
            )
    models, _, name = (recipe.model.hf_checkpoint or "").rpartition("/")
    options = (
        ("--model-name", name),
        ("--num-nodes", str(ask.shape.nodes)),
        ("--num-gpus-per-node", str(ask.shape.gpus)),
        ("--model-dir", models),
        ("--data-dir", "{data}"),
        ("--output-dir", "{run_dir}"),
        *((("--megatron-path", "{megatron}"),) if megatron else ()),
        # Plain `A=B` loses every value with a second `=`, and the launcher's own no_proxy leaves
        # out all workers.
        ("--extra-env-vars", json.dumps({"no_proxy": "{no_proxy}", "NO_PROXY": "{no_proxy}"})),
        ("--extra-args", shlex.join(words_of(merged_flags.others))),
    )
    argv = (
        "{python}",
        f"{{miles}}/{recipe.driver.script}",
        "train",
        *(word for option in options for word in option),
        *recipe.driver.script_args,
    )
    return Command(argv, differs)


def words_of(flags: Iterable[tuple[str, Value]]) -> tuple[str, ...]:
    """Flags as words of a command line."""
    words: list[str] = []
    for name, value in flags:
        words.append(name)
        if isinstance(value, tuple):
            words.extend(value)
        elif isinstance(value, str):
            words.append(value)
    return tuple(words)


def _flags(ask: Ask) -> tuple[Merged, tuple[Difference, ...]]:
    recipe = ask.recipe
    if recipe.model.hf_checkpoint is None:
        raise BadInput(
            f"entry {recipe.driver.entry} needs the model's Hugging Face directory",
            where="model.hf_checkpoint",
            fix="give a path, such as {models}/NAME",
        )
    if ask.shape.rollout is not None and recipe.data.prompt_data is None:
        raise BadInput(
            f"entry {recipe.driver.entry} needs prompts",
            where="data.prompt_data",
            fix="give a jsonl file, such as {data}/NAME.jsonl",
        )
    checkpoint, given, differs = _checkpoint(ask, dict(recipe.flags))
    found = section_flags(recipe, ask.shape)
    merge = merged(model_flags(ask.model), [*checkpoint, *found], given)
    added, reasons = _added(ask, merge)
    others = (*merge.others, *added)
    return Merged(merge.facts, others, merge.differs), (*differs, *merge.differs, *reasons)


def is_resumable(recipe: Recipe) -> bool:
    """Whether the run saves what a second start of it will load."""
    return recipe.resume == "auto" and recipe.checkpoint.interval is not None


def _checkpoint(
    ask: Ask, given: dict[str, FlagValue]
) -> tuple[list[Flag], dict[str, FlagValue], list[Difference]]:
    """Where weights come from and go to; what a resumable run leaves out, with the reasons."""
    recipe, interval = ask.recipe, ask.recipe.checkpoint.interval
    hf, ref = recipe.model.hf_checkpoint, recipe.model.ref_load
    if ref is None and given.get("--megatron-to-hf-mode") == "bridge":
        ref = hf
    saved = None if interval is None else ask.checkpoints
    differs: list[Difference] = []
    found = [
        Flag("--hf-checkpoint", hf, "model.hf_checkpoint"),
        Flag("--save", saved, "checkpoint.dir"),
        Flag("--save-interval", None if interval is None else str(interval), "checkpoint.interval"),
    ]
    if is_resumable(recipe):
        start = as_value(given.pop("--load", None))
        if isinstance(start, str):
            differs.append(_different("--ref-load", ref, start, "the weights of the first start"))
            ref = start
        found.append(Flag("--load", saved, "resume: auto"))
        differs += _resuming(ask, given, start if isinstance(start, str) else None)
    found.insert(1, Flag("--ref-load", ref, "model.ref_load"))
    return found, given, differs


def _resuming(ask: Ask, given: dict[str, FlagValue], start: str | None) -> list[Difference]:
    """Drop from `given` what would forget the last checkpoint; why our command differs."""
    differs = [
        _different(
            "--save",
            "a new directory each launch",
            ask.checkpoints,
            "a second start must find the first one's checkpoints",
        ),
        _different(
            "--load",
            start,
            ask.checkpoints,
            "the run goes on at its last checkpoint; without one miles takes --ref-load",
        ),
    ]
    if as_value(given.pop("--no-save-optim", None)) is not None:
        total = count_parameters(ask.model).total
        size = f"{ADAM_AND_WEIGHT_BYTES * total / 1e12:.3g} TB and not {2 * total / 1e12:.3g} TB"
        why = f"without Adam's states a resumed run is another run; a checkpoint is then {size}"
        differs.append(_different("--no-save-optim", "given", None, why))
    for name, why in FORGETFUL.items():
        if as_value(given.pop(name, None)) is not None:
            differs.append(_different(name, "given", None, why))
    return differs


def _added(ask: Ask, merge: Merged) -> tuple[list[tuple[str, Value]], list[Difference]]:
    """What the hardware and the environment ask for, unless the recipe says it itself."""
    names = {name for name, _ in merge.others}
    added: list[tuple[str, Value]] = []
    differs: list[Difference] = []
    gpu = ask.shape.gpu
    if gpu and gpu.first_kernels_slow and ask.shape.rollout and FIRST_WAIT not in names:
        added.append((FIRST_WAIT, str(FIRST_WAIT_S)))
        why = f"the first kernels of a {gpu.name} compile for minutes"
        differs.append(_different(FIRST_WAIT, "0 (default)", str(FIRST_WAIT_S), why))
    if ask.wandb and "--use-wandb" not in names:
        project = ask.recipe.name
        added += [
            ("--use-wandb", True),
            ("--wandb-project", f"miles-{project}"),
            ("--wandb-group", project),
            ("--disable-wandb-random-suffix", True),
        ]
        why = "a key on the command line stands in every process list; it stays in the environment"
        differs.append(_different("--wandb-key", "the key itself", None, why))
    return added, differs


def _different(flag: str, miles: str | None, ours: str | None, why: str) -> Difference:
    return Difference(flag=flag, miles=miles, ours=ours, why=why)


def _refuse_script(ask: Ask) -> None:
    """A launcher's switches cannot be taken back by a later flag."""
    recipe = ask.recipe
    if recipe.driver.script is None:
        raise BadInput(
            "entry script needs miles' launcher",
            where="driver.script",
            fix="name it below miles' directory, such as scripts/run_inkling.py",
        )
    stuck = [name for name in FORGETFUL if as_value(recipe.flags.get(name)) is not None]
    if is_resumable(recipe) and stuck:
        raise BadInput(
            f"{recipe.driver.script} always passes {', '.join(stuck)}, so its run cannot resume",
            where="driver.entry",
            fix="use entry: train, or resume: off",
        )


def miles_env(*, megatron: bool) -> dict[str, EnvValue]:
    """Where Ray's workers import miles from; Ray fills in `${PYTHONPATH}` on each node."""
    roots = ("{miles}", *(("{megatron}",) if megatron else ()), "${PYTHONPATH}")
    why = "Ray's workers import miles and Megatron-LM from here"
    return {"PYTHONPATH": EnvValue(value=":".join(roots), origin="default", why=why)}
