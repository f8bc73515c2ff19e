"""What a person sees in the terminal. The only place that uses rich."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from ruamel.yaml import YAML

from slurmmiles.jsonfile import read_lines
from slurmmiles.planfile import Plan
from slurmmiles.report import Report
from slurmmiles.result import Phase

if TYPE_CHECKING:  # `plan` must not wait for what follows a job: psutil, sbatch, the agent
    from slurmmiles.job import Job, RunStatus

MAX_GRID_NODES = 16


class _Terminal(Console):
    """rich ends the process with 1 when its reader has left; that is for `cli.run` to decide."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(stderr: bool = False) -> Console:
    # COLUMNS=0, as some shells set it, would make rich print nothing.
    width = 80 if shutil.get_terminal_size().columns < 1 else None
    file = sys.stderr if stderr else sys.stdout
    return _Terminal(file=file, highlight=False, soft_wrap=True, width=width)


def listing(rows: Sequence[dict[str, str]]) -> None:
    """Name and description, one line each."""
    width = max((len(r["name"]) for r in rows), default=0)
    for row in rows:
        _console().print(escape(f"{row['name']:<{width}}  {row['description']}"))


def as_yaml(value: Any) -> str:
    """`value` as YAML text."""
    stream = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(value, stream)
    return stream.getvalue()


def plan(p: Plan) -> None:
    """The plan as a person reads it: headline, layout, memory, environment, request, cost."""
    console = _console()
    unit = "GPUs" if p.gpus_per_node else "CPU ranks"
    spare = f" + {p.spares} spare" if p.spares else ""
    console.print(
        f"[bold]{escape(p.recipe)}[/] on {p.nodes}{spare} x {p.ranks_per_node} {unit}, site"
        f" {escape(p.site)}"
    )
    t = p.topology
    console.print(
        f"layout   TP {t.tp}  PP {t.pp}  CP {t.cp}  EP {t.ep}  ETP {t.etp}  DP {t.dp}  ="
        f" {t.world_size} ranks"
    )
    if t.pp > 1:
        console.print(f"         layers per stage {', '.join(map(str, t.layers_per_stage))}")
    if p.rollout:
        r = p.rollout
        console.print(
            f"rollout  {r.engines} engine(s) x {r.gpus_per_engine}: EP {r.ep}, DP {r.dp}, attention"
            f" TP {r.attn_tp}, {r.nodes_per_engine} node(s) each"
        )
    _grid(console, p)
    _memory(console, p)
    _environment(console, p)
    console.print(f"driver   {escape(' '.join(p.driver.argv))}")
    request = " ".join(f"--{k}" if v is None else f"--{k}={v}" for k, v in p.slurm.directives)
    console.print(f"slurm    {escape(request)}")
    price = f", {p.cost.usd:,.2f} USD" if p.cost.usd is not None else ""
    console.print(f"cost     at most {p.cost.gpu_hours:g} GPU-hours{price}")
    for note in p.notes:
        console.print(f"note     {escape(note)}")


def _grid(console: Console, p: Plan) -> None:
    """One row a node: the pipeline stages of its ranks, and the engines that stand on it."""
    if p.rollout is None or p.nodes > MAX_GRID_NODES:
        return
    cell = p.topology.world_size // p.topology.pp
    for node in range(p.nodes):
        ranks = range(node * p.ranks_per_node, (node + 1) * p.ranks_per_node)
        stages = "".join(str(rank // cell) for rank in ranks)
        engines = [str(e) for e, nodes in enumerate(p.rollout.engine_nodes) if node in nodes]
        console.print(f"node {node:<3} stages {stages}  engine {','.join(engines)}")


def _memory(console: Console, p: Plan) -> None:
    colour = {"fits": "green", "tight": "yellow"}.get(p.memory.verdict, "red")
    used, limit = p.memory.gpu_gb.get("total", 0.0), p.memory.gpu_gb.get("limit", 0.0)
    gpu = f"GPU {used:.1f} of {limit:.1f} GB, " if limit else ""
    host = p.memory.host_gb.get("total") or 0.0
    console.print(f"memory   [{colour}]{p.memory.verdict}[/]: {gpu}host {host:.1f} GB a node")
    for note in p.memory.notes:
        console.print(f"         {escape(note)}")


def _environment(console: Console, p: Plan) -> None:
    """One line a variable, for grep and for eyes: the assignment, who decided it, and why."""
    console.print("environment of every Ray process")
    for name, entry in p.env.items():
        why = f": {entry.why}" if entry.why else ""
        console.print(
            f"  {escape(f'{name}={entry.value}')}  [dim]({escape(entry.origin)}{escape(why)})[/]"
        )


def submitted(run_id: str, job_id: str, run_dir: Path) -> None:
    """Run id, job id, run directory, and what to type next."""
    console = _console()
    console.print(f"run      {escape(run_id)}\njob      {job_id}\nfiles    {escape(str(run_dir))}")
    where = escape(str(run_dir))
    console.print(
        f"next     slurmmiles status {where}\n         slurmmiles logs -f {where}\n        "
        f" slurmmiles cancel {where}"
    )


STATUS_FIELDS = (
    *("run_id", "job_id", "run_dir", "mode", "state", "phase", "outcome", "exit_code"),
    *("sentence", "nodes", "result"),
)


def status_fields(s: RunStatus) -> dict[str, Any]:
    """The fields of `status --json`."""
    return {name: getattr(s, name) for name in STATUS_FIELDS}


def end_fields(s: RunStatus) -> dict[str, Any]:
    """The fields of `submit --wait --json`: those of result.json, and what Slurm says."""
    fields = status_fields(s)
    return {**fields, **(fields.pop("result") or {})}


def ended(s: RunStatus) -> None:
    """The state in a sentence, and for an ended run its phases and last metrics."""
    console = _console()
    head = s.outcome or s.state
    colour = "green" if s.outcome == "completed" else "red" if s.outcome else "yellow"
    console.print(
        f"[{colour}]{escape(head)}[/]  {escape(s.run_id)}  job {s.job_id} ({escape(s.state)})"
    )
    console.print(escape(s.sentence))
    result = s.result or {}
    if s.outcome and result:
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result["seconds"].items())
        joined = result.get("joined_after_s")
        console.print(
            f"phases   {phases}" + (f"; all nodes joined after {joined:.1f} s" if joined else "")
        )
        m = result.get("metrics") or {}
        if None not in (m.get("reward_first"), m.get("reward_last")):
            console.print(
                f"reward   {m['reward_first']:.3f} (first 5 steps) -> {m['reward_last']:.3f} (last"
                " 5 steps)"
            )
        if m.get("logprob_diff_max") is not None:
            console.print(
                f"log-prob difference, Megatron against SGLang: at most {m['logprob_diff_max']:.2e}"
            )
    console.print(f"files    {escape(s.run_dir)}" + ("/result.json" if result else ""))


def run_list(rows: Sequence[dict[str, Any]]) -> None:
    """One run a line."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("run", "job", "state", "outcome", "phase"):
        table.add_column(column)
    for r in rows:
        table.add_row(
            *(escape(str(r[k] or "")) for k in ("run_id", "job_id", "state", "outcome", "phase"))
        )
    _console().print(table)


class Ticker:
    """Called while a run is waited for: each new phase or step once; on stderr when stdout is for
    JSON.
    """

    def __init__(self, job: Job, quiet: bool) -> None:
        self._job, self._console = job, _console(stderr=quiet)
        self._said = ""
        self._steps = 0

    def __call__(self, status: RunStatus) -> None:
        progress = self._job.progress()
        said = (
            f"{progress.phase.value}: {progress.detail}"
            if progress
            else f"{status.state}: {status.sentence}"
        )
        in_steps = (
            progress is not None
            and progress.phase is Phase.DRIVER
            and progress.detail.startswith("step ")
        )
        if said != self._said and not in_steps:
            self._console.print(escape(said))
        self._said = said
        attempt = self._job.attempt()
        records = read_lines(attempt.metrics) if attempt else []
        for record in records[self._steps :]:
            self._console.print(escape(_step(record)))
        self._steps = len(records)


def _step(record: dict[str, Any]) -> str:
    parts = [f"step {record.get('step', '?'):>4}"]
    for key, text in (
        ("reward_mean", "reward {:.3f}"),
        ("logprob_diff", "log-prob difference {:.1e}"),
    ):
        if isinstance(record.get(key), float):
            parts.append(text.format(record[key]))
    reward = record.get("reward_mean")
    if isinstance(reward, float):
        parts.append("#" * round(40 * min(max(reward, 0.0), 1.0)))
    return "  ".join(parts)


def report(r: Report) -> None:
    """Findings, worst first."""
    colours = {"PASS": "green", "WARN": "yellow", "UNKNOWN": "magenta", "FAIL": "red"}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for f in r.findings:
        text = f"{f.message}; {f.remedy}" if f.remedy else f.message
        table.add_row(
            f"[{colours[f.verdict.value]}]{f.verdict.value}[/]", escape(f.subject), escape(text)
        )
    _console().print(table)
