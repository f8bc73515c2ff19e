"""The environment that a run's processes need, as a table of value, origin and reason.

Precedence: `--set env.X`, the environment of the command, the recipe, the site, the fabric's
profile, our defaults. A value that only a node knows is a placeholder which that node fills in; a
fabric that the site does not name is found by each node, which then adds its profile
(`fabric.node`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurmmiles.errors import BadInput
from slurmmiles.fabric.profiles import FABRIC, profile
from slurmmiles.planfile import EnvValue, FabricPlan
from slurmmiles.recipe import Recipe
from slurmmiles.site import Site

# Set by the agent, never by a person: a value of one's own here would point the nodes at different
# clusters.
OURS = frozenset({"RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"})
# By whole words, since TOKENIZERS_PARALLELISM holds no secret, and a name in _FILE holds a path.
SECRET = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)(_|$)(?!.*_?(FILE|PATH|DIR)$)",
    re.IGNORECASE,
)
# What a person exports for the network between the nodes: it goes with the run, and is shown.
NETWORK = re.compile(
    r"^(NCCL|TORCH_NCCL|NVSHMEM|FI|OFI_NCCL|UCX|GLOO|RDMAV)_\w+$|^PYTORCH_(CUDA_)?ALLOC_CONF$"
)
OPEN = re.compile(r"\{[a-z_]+\}")
ENVIRONMENT = "environment"


def resolve_env(
    recipe: Recipe,
    site: Site,
    *,
    device: str,
    user: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
    fabric: FabricPlan | None = None,
) -> dict[str, EnvValue]:
    """The environment around `ray start` on each node, sorted by name; BadInput for a secret.

    `user` has the names of `--set env.X`, `environ` the environment of the command.
    """
    table = _defaults(device)
    if fabric is not None and fabric.kind != "auto":
        table |= profile(fabric)
    for name, value in site.env.items():
        _refuse_secret(name, f"site {site.name}, env")
        table[name] = EnvValue(value=_text(value), origin=f"site {site.name}")
    for name, value in recipe.env.items():
        origin = "user" if name in user else f"recipe {recipe.name}"
        _refuse_secret(name, f"--set env.{name}" if name in user else f"{origin}, env")
        table[name] = EnvValue(value=_text(value), origin=origin)
    for name, text in (environ or {}).items():
        if NETWORK.match(name) and not SECRET.search(name) and name not in user:
            table[name] = EnvValue(
                value=text, origin=ENVIRONMENT, why="exported where the run was submitted"
            )
    return dict(sorted(table.items()))


def spoken(env: Mapping[str, EnvValue]) -> dict[str, str]:
    """NAME to value, of those that need no node to be complete."""
    return {name: e.value for name, e in env.items() if not OPEN.search(e.value)}


def is_low(entry: EnvValue) -> bool:
    """Whether a node may know better: our defaults and the fabric's profile."""
    return entry.origin in ("default", "node") or entry.origin.startswith(FABRIC)


def _refuse_secret(name: str, where: str) -> None:
    """The plan, the script and the logs are files that others read."""
    if SECRET.search(name):
        raise BadInput(
            f"{name} holds a secret, which would be written into plan.json and the script",
            where=where,
            fix=f"remove it and export {name} in the shell that submits",
        )


def _text(value: str | int | float | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _node(value: str, why: str) -> EnvValue:
    return EnvValue(value=value, origin="node", why=why)


def _default(value: str, why: str) -> EnvValue:
    return EnvValue(value=value, origin="default", why=why)


def _defaults(device: str) -> dict[str, EnvValue]:
    table = {
        "PYTHONUNBUFFERED": _default("1", "a killed process must not take its last lines with it"),
        "RAY_USAGE_STATS_ENABLED": _default("0", "compute nodes have no way out"),
        "RAY_enable_worker_prestart": _default(
            "0", "Ray would start a Python process for each CPU of each node at once"
        ),
        "RAY_prestart_worker_first_driver": _default("0", "the same, at the first driver"),
        "RAY_DEDUP_LOGS": _default("0", "a line that only one rank prints must not be folded away"),
        "TMPDIR": _node("{scratch}", "what the run leaves in a temp directory goes with the run"),
        "TOKENIZERS_PARALLELISM": _default("false", "tokenizers' threads do not survive a fork"),
        "MASTER_ADDR": _node(
            "{head_address}", "torch.distributed's rendezvous, on the interface of the run"
        ),
        "GLOO_SOCKET_IFNAME": _node(
            "{interface}", "Gloo takes 127.0.0.1 when the host name resolves to it"
        ),
        "SGLANG_HOST_IP": _node(
            "{node_address}", "SGLang would choose an address by the default route"
        ),
        "no_proxy": _node("{no_proxy}", "a site's proxy must not see traffic between the nodes"),
        "NO_PROXY": _node("{no_proxy}", "the same for programs that read this spelling"),
    }
    return table | _gpu_defaults() if device == "gpu" else table


def _gpu_defaults() -> dict[str, EnvValue]:
    """Sources: NCCL's and NVSHMEM's environment pages; miles' actor_factory.py and launcher."""
    return {
        "NCCL_SOCKET_IFNAME": _node("={interface}", "NCCL's bootstrap, by exact name"),
        "NCCL_DEBUG": _default("WARN", "an error of NCCL is printed with its reason"),
        "CUDA_DEVICE_MAX_CONNECTIONS": _default(
            "1", "Megatron's overlap of TP communication relies on it"
        ),
        "NVSHMEM_DISABLE_NCCL": _default(
            "1", "its own NCCL communicator hangs in SGLang's CUDA graphs (miles#1374)"
        ),
        "NVSHMEM_BOOTSTRAP": _default(
            "UID", "Ray starts the ranks, so srun's PMI is not there to wire them up"
        ),
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": _node(
            "={interface}", "NVSHMEM's bootstrap, by exact name"
        ),
        "TORCHINDUCTOR_CACHE_DIR": _node(
            "{scratch}/torchinductor",
            "compiled kernels on the node's own disk, not on a shared one",
        ),
        "TRITON_CACHE_DIR": _node("{scratch}/triton", "the same for Triton"),
    }
