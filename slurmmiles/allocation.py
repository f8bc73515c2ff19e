"""The allocation as one task of it sees it: job id, nodes in Slurm's order, my rank, restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurmmiles import hostlist
from slurmmiles.errors import BadInput


@dataclass(frozen=True, slots=True)
class Allocation:
    """Who takes part: `nodes[0]` is the head, `rank` is this task's node, `started` is epoch
    seconds or None.
    """

    job_id: str
    nodes: tuple[str, ...]
    rank: int
    restart: int = 0
    started: float | None = None
    is_slurm: bool = True

    @property
    def node(self) -> str:
        return self.nodes[self.rank]

    @property
    def head(self) -> str:
        return self.nodes[0]

    @property
    def is_head(self) -> bool:
        return self.rank == 0

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Allocation:
        """Read a step's environment (man srun, OUTPUT ENVIRONMENT VARIABLES); BadInput outside of a
        step.

        The step's node list comes first: a step may use fewer nodes than its job.
        SLURMMILES_STARTED is set by our script, since SLURM_JOB_START_TIME is younger than the
        Slurm releases that we support.
        """
        listing = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST")
        job_id = env.get("SLURM_JOB_ID")
        if not listing or not job_id:
            raise BadInput(
                "this process is not in a Slurm step (SLURM_JOB_ID or SLURM_STEP_NODELIST is not"
                " set)",
                fix="start it by srun, or use `slurmmiles submit --local`",
            )
        nodes = hostlist.expand(listing)
        rank = _number(env, "SLURM_NODEID")
        if not 0 <= rank < len(nodes):
            raise BadInput(
                f"SLURM_NODEID is {rank} but the step has {len(nodes)} nodes", where=listing
            )
        tasks = hostlist.counts(env.get("SLURM_STEP_TASKS_PER_NODE", "1"))
        if set(tasks) != {1}:
            raise BadInput(
                f"the step has {env['SLURM_STEP_TASKS_PER_NODE']} tasks per node, and the agent"
                " needs one",
                fix="use --ntasks-per-node=1",
            )
        started = _number(env, "SLURMMILES_STARTED") or _number(env, "SLURM_JOB_START_TIME")
        return cls(
            job_id=job_id,
            nodes=nodes,
            rank=rank,
            restart=_number(env, "SLURM_RESTART_COUNT"),
            started=float(started) if started else None,
        )

    @classmethod
    def local(cls, env: Mapping[str, str]) -> Allocation:
        """The stand-in for Slurm on one machine, from the variables that `submit --local` sets."""
        return cls(
            job_id=env["SLURMMILES_LOCAL_JOB"],
            nodes=tuple(env["SLURMMILES_LOCAL_NODES"].split(",")),
            rank=int(env["SLURMMILES_LOCAL_RANK"]),
            started=float(env["SLURMMILES_STARTED"]),
            is_slurm=False,
        )


def _number(env: Mapping[str, str], name: str) -> int:
    """A count in the environment, 0 when it is not there; BadInput when it is no number."""
    text = env.get(name) or "0"
    try:
        return int(text)
    except ValueError:
        raise BadInput(
            f"{text[:80]!r} is not a number", where=name, fix="start the agent by srun"
        ) from None
