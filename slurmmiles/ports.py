"""Which ports a run uses on a node: a block below the ephemeral floor, claimed by its first port.

Ports above the floor are handed out by the kernel to any outgoing connection, so a fixed port there
is lost by chance; two runs on one node take different blocks, because each holds the first port of
its block open.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 400
FIRST = 10_240
LAST_PRIVILEGED = 1_024  # ip(7): ports below need CAP_NET_BIND_SERVICE
DEFAULT_FLOOR = 32_768  # Linux's own default of net.ipv4.ip_local_port_range


@dataclass(frozen=True, slots=True)
class PortBlock:
    """Ports base .. base+399 of one node of one run, by role (named as in `ray start --help`)."""

    base: int

    @property
    def control(self) -> int:
        """Held open by the agent for as long as the run lives: the claim on the whole block."""
        return self.base

    @property
    def gcs(self) -> int:
        return self.base + 1

    @property
    def dashboard(self) -> int:
        return self.base + 2

    @property
    def ray_client(self) -> int:
        return self.base + 3

    @property
    def node_manager(self) -> int:
        return self.base + 4

    @property
    def object_manager(self) -> int:
        return self.base + 5

    @property
    def dashboard_agent_http(self) -> int:
        return self.base + 6

    @property
    def dashboard_agent_grpc(self) -> int:
        return self.base + 7

    @property
    def runtime_env_agent(self) -> int:
        return self.base + 8

    @property
    def metrics_export(self) -> int:
        return self.base + 9

    @property
    def fixed(self) -> tuple[int, ...]:
        """The ports that must be free before Ray starts."""
        return tuple(range(self.base, self.base + 10))

    @property
    def workers(self) -> tuple[int, int]:
        """First and last port of Ray's worker processes."""
        return self.base + 100, self.base + BLOCK - 1


def candidates(job_id: str, ephemeral_floor: int) -> tuple[PortBlock, ...]:
    """Every block below the floor, beginning with the one that `job_id` prefers; the same on every
    node.

    Job ids count up, so neighbours in time prefer different blocks.
    """
    first = FIRST if ephemeral_floor >= FIRST + 4 * BLOCK else LAST_PRIVILEGED
    blocks = [PortBlock(base) for base in range(first, ephemeral_floor - BLOCK + 1, BLOCK)]
    digits = "".join(c for c in job_id if c in "0123456789")
    start = int(digits[-18:] or "0") % max(1, len(blocks))
    return tuple(blocks[start:] + blocks[:start])


def preferred(job_id: str, ephemeral_floor: int) -> PortBlock:
    """Where a node looks for the head first; a head that is elsewhere says so in head.json."""
    return next(iter(candidates(job_id, ephemeral_floor)), PortBlock(FIRST))
