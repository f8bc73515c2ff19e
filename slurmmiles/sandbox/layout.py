"""The names, addresses and paths of one sandbox; pure, and light (the nodes' inits import it)."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from slurmmiles.errors import BadInput

DEFAULT_DIR = Path("/var/lib/slurmmiles-sandbox")
MAX_NODES = 16
UNIX_PATH_MAX = 107  # bytes of a socket's path without its final NUL, unix(7)
# slurmstepd's socket is the longest path below the directory: nodes/NODE/spool/NODE_JOB.STEP
LONGEST_SOCKET = "/nodes/node01/spool/node01_4294967295.4294967295"
NETWORK = "10.77.0"  # exists only inside the sandbox's own network namespaces
LOGIN_NAME, LOGIN_ADDRESS = "ctl", f"{NETWORK}.1"
CLIENTS = ("sbatch", "srun", "salloc", "scancel", "scontrol", "sinfo", "squeue", "sacct")


@dataclass(frozen=True, slots=True)
class Spec:
    """What the sandbox looks like; sizes are per node. Raises BadInput on one out of range."""

    nodes: int = 2
    cpus: int = 32
    gpus: int = 8
    memory_mb: int = 65536
    shm: str = "1g"  # size of /dev/shm, in tmpfs(5)'s units
    slurmd_timeout: int = 5  # seconds until slurmctld gives up a silent node
    topology: bool = False
    share: tuple[str, ...] = ()  # directories under /tmp that every node sees

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", tuple(self.share))
        _within("nodes", self.nodes, 1, MAX_NODES)
        _within("cpus", self.cpus, 1, 1024)
        _within("gpus", self.gpus, 0, 16)
        _within("slurmd-timeout", self.slurmd_timeout, 2, 3600)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"node{i:02d}" for i in range(1, self.nodes + 1))


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine below: its cgroups ("v1", "v2", "none"), Slurm's version, the first job id."""

    cgroup: str
    slurm: tuple[int, int]
    first_job_id: int


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        fix = f"give a number from {low} to {high}"
        raise BadInput(f"--{name} is {value}", where="sandbox", fix=fix)


def node_address(name: str) -> str:
    """10.77.0.101 for node01; 10.77.0.1 for the login node."""
    if name == LOGIN_NAME:
        return LOGIN_ADDRESS
    return f"{NETWORK}.{100 + int(name.removeprefix('node'))}"


def veth(name: str) -> str:
    """The login node's end of a node's cable."""
    return f"v-{name}"


@dataclass(frozen=True, slots=True)
class SandboxDir:
    """Every path of one sandbox, below `root`; raises BadInput if Slurm's sockets would not fit."""

    root: Path

    def __post_init__(self) -> None:
        room = UNIX_PATH_MAX - len(LONGEST_SOCKET)
        if not self.root.is_absolute() or len(bytes(self.root)) > room:
            fix = f"give an absolute path of at most {room} bytes (unix(7) limits a socket's path)"
            raise BadInput(f"the sandbox directory {self.root} cannot hold sockets", fix=fix)
        if odd := set(str(self.root)) - _PLAIN:
            fix = "use letters, digits and /._-"
            raise BadInput(f"the sandbox directory {self.root} has {sorted(odd)} in it", fix=fix)

    @property
    def lock(self) -> Path:
        return self.root.with_name(f"{self.root.name}.lock")

    @property
    def record(self) -> Path:
        """What was asked for and found, as JSON; its presence marks the directory as ours."""
        return self.root / "sandbox.json"

    @property
    def login_pid(self) -> Path:
        """`PID STARTTIME` of the PID 1 of the whole sandbox, as the machine sees it."""
        return self.root / "ctl.pid"

    @property
    def ready(self) -> Path:
        """There once slurmctld runs."""
        return self.root / "state" / "ready"

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def completions(self) -> Path:
        """One line per ended job (jobcomp/filetxt), for sacct without slurmdbd."""
        return self.log / "jobcomp.txt"

    @property
    def munge_key(self) -> Path:
        return self.root / "munge" / "key"

    @property
    def munge_socket(self) -> Path:
        return self.root / "munge" / "socket"

    @property
    def sacct(self) -> Path:
        """The stand-in for sacct(1), mounted over it inside the sandbox."""
        return self.root / "libexec" / "sacct-without-slurmdbd"

    @property
    def cgroup_anchor(self) -> Path:
        """Where the machine's /sys/fs/cgroup waits while a node gets a /sys of its own."""
        return self.root / "cgroup"

    @property
    def cgroup_name(self) -> str:
        """Our own folder in the machine's cgroup tree: two sandboxes never share one."""
        return f"slurmmiles-{zlib.crc32(bytes(self.root)):08x}"

    def gpu(self, index: int) -> Path:
        return self.root / "dev" / f"nvidia{index}"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def tmp(self, name: str) -> Path:
        """What the node sees as /tmp."""
        return self.node(name) / "tmp"

    def hosts(self, name: str) -> Path:
        """What the node sees as /etc/hosts; the login node has one too."""
        return self.node(name) / "hosts"

    def node_pid(self, name: str) -> Path:
        """The PID of the node's PID 1, as the login node sees it; absent while the node is off."""
        return self.node(name) / "init.pid"

    def slurmd_pid(self, name: str) -> Path:
        """The PID of the node's slurmd, as the node sees it."""
        return self.node(name) / "slurmd.pid"


# slurm.conf, the wrappers and ip(8) take these without quoting.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")


def write_record(where: SandboxDir, spec: Spec, machine: Machine) -> None:
    """Leave `spec` and `machine` for the inits and for later commands."""
    record = {"spec": asdict(spec), "machine": asdict(machine)}
    where.record.write_text(json.dumps(record, indent=1) + "\n")


def read_record(where: SandboxDir) -> tuple[Spec, Machine]:
    """The sandbox's Spec and Machine; raises FileNotFoundError when there is none."""
    record = json.loads(where.record.read_text())
    machine = record["machine"] | {"slurm": tuple(record["machine"]["slurm"])}
    return Spec(**record["spec"]), Machine(**machine)
