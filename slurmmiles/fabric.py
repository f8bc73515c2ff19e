"""The environment that a run's processes need, as a table of value, origin and reason.

Precedence: the user's `--set env.X`, the recipe, the site, then our defaults; a value that only a
node knows is a placeholder which that node fills in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurmmiles.errors import BadInput
from slurmmiles.planfile import EnvValue
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


def resolve_env(
    recipe: Recipe, site: Site, *, device: str, user: Mapping[str, str]
) -> dict[str, EnvValue]:
    """The environment around `ray start` on each node, sorted by name; BadInput for a secret."""
    table = _defaults(device)
    for name, value in site.env.items():
        _refuse_secret(name, f"site {site.name}, env")
        table[name] = EnvValue(value=_text(value), origin=f"site {site.name}")
    for name, value in recipe.env.items():
        origin = "user" if name in user else f"recipe {recipe.name}"
        _refuse_secret(name, f"--set env.{name}" if name in user else f"{origin}, env")
        table[name] = EnvValue(value=_text(value), origin=origin)
    return dict(sorted(table.items()))


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


def _defaults(device: str) -> dict[str, EnvValue]:
    def node(value: str, why: str) -> EnvValue:
        return EnvValue(value=value, origin="node", why=why)

    def default(value: str, why: str) -> EnvValue:
        return EnvValue(value=value, origin="default", why=why)

    table = {
        "PYTHONUNBUFFERED": default("1", "a killed process must not take its last lines with it"),
        "RAY_USAGE_STATS_ENABLED": default("0", "compute nodes have no way out"),
        "RAY_enable_worker_prestart": default(
            "0", "Ray would start a Python process for each CPU of each node at once"
        ),
        "RAY_prestart_worker_first_driver": default("0", "the same, at the first driver"),
        "RAY_DEDUP_LOGS": default("0", "a line that only one rank prints must not be folded away"),
        "TMPDIR": node("{scratch}", "what the run leaves in a temp directory goes with the run"),
        "TOKENIZERS_PARALLELISM": default("false", "tokenizers' threads do not survive a fork"),
        "MASTER_ADDR": node(
            "{head_address}", "torch.distributed's rendezvous, on the interface of the run"
        ),
        "GLOO_SOCKET_IFNAME": node(
            "{interface}", "Gloo takes 127.0.0.1 when the host name resolves to it"
        ),
        "SGLANG_HOST_IP": node(
            "{node_address}", "SGLang would choose an address by the default route"
        ),
        "no_proxy": node("{no_proxy}", "a site's proxy must not see traffic between the nodes"),
        "NO_PROXY": node("{no_proxy}", "the same for programs that read this spelling"),
    }
    if device == "gpu":
        table["NCCL_SOCKET_IFNAME"] = node("={interface}", "NCCL's bootstrap, by exact name")
        table["CUDA_DEVICE_MAX_CONNECTIONS"] = default(
            "1", "Megatron's overlap of TP communication relies on it"
        )
    return table
