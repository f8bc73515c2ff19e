"""Environment values that cannot work together, or that do nothing: refused or warned about before
a run. Pure; the plan, the agent and `preflight replay` judge with the same functions.

What is not known (None or "") is not judged. Sources stand at each rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmmiles.efa_rules import judge_efa
from slurmmiles.env_names import GLOO_IF, NCCL_IF, judge_gloo, judge_ifname
from slurmmiles.findings import about, fail, warn
from slurmmiles.report import Finding

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_OFF = ("0", "false", "off", "no")


@dataclass(frozen=True, slots=True)
class EnvContext:
    """What is known of the place that an environment is for."""

    fabric: str | None = None
    """infiniband, roce, slingshot, efa, ethernet."""
    colocate: bool | None = None
    offload: bool | None = None
    gpu: str = ""
    """The product's name, as nvidia-smi or the plan says it."""
    slurm_network: str | None = None
    """SLURM_NETWORK; "" is known to be unset."""
    plugins: frozenset[str] | None = None
    """Paths or names of readable libraries that NCCL could load as a plugin."""
    libfabric: str = ""
    aws_ofi: str = ""
    efa_installer: str = ""
    multi_node_nvlink: bool | None = None


def judge_env(env: Mapping[str, str], place: EnvContext) -> list[Finding]:
    """Every rule of this module and of EFA, and the syntax of the interface lists."""
    findings = [
        *_expandable_segments(env, place),
        *_plugin(env, place),
        *_alt_read(env, place),
        *_gdrcopy(env, place),
        *_multi_node_nvlink(env, place),
        *_nvls(env, place),
        *_timeout(env),
        *judge_ifname(env.get(NCCL_IF), None),
        *judge_gloo(env.get(GLOO_IF)),
    ]
    if place.fabric in (None, "efa"):
        findings += judge_efa(
            env,
            sure=place.fabric == "efa",
            libfabric=place.libfabric,
            aws_ofi=place.aws_ofi,
            installer=place.efa_installer,
        )
    return findings


def expandable_segments(value: str | None) -> bool:
    """Whether an allocator setting turns expandable segments on (`a:b,c:d`, blanks allowed)."""
    options = (option.partition(":") for option in (value or "").split(","))
    return any(
        name.strip() == "expandable_segments" and on.strip().lower() in ("true", "1")
        for name, _, on in options
    )


def _expandable_segments(env: Mapping[str, str], place: EnvContext) -> Iterator[Finding]:
    """torch_memory_saver#24, pytorch#130330, miles PR#2852: its pause and CUDA IPC need plain
    segments. PyTorch 2.9 renamed the variable and reads both names.
    """
    for name in ALLOCATOR:
        if not expandable_segments(env.get(name)):
            continue
        remedy = f"take expandable_segments out of {name}; miles turns it on around training itself"
        if place.colocate or place.offload:
            mode = "colocated training" if place.colocate else "offloading"
            yield fail(
                "expandable_segments_with_colocate",
                about(var=name),
                f"{name}={env[name]} breaks the memory saver's pause and CUDA IPC, which {mode}"
                " uses",
                remedy,
                value=env[name],
            )
        elif place.colocate is None and place.offload is None:
            yield warn(
                "expandable_segments",
                about(var=name),
                f"{name}={env[name]} cannot be used in a colocated run",
                remedy,
                value=env[name],
            )


def _plugin(env: Mapping[str, str], place: EnvContext) -> Iterator[Finding]:
    """NCCL opens NCCL_NET_PLUGIN=X as X and as libnccl-net-X.so (src/plugin/plugin_open.cc),
    without it libnccl-net.so, and falls back to its own transports when neither is there.
    """
    if place.plugins is None:
        return
    here = {path.rpartition("/")[2] for path in place.plugins} | place.plugins
    wanted = env.get("NCCL_NET_PLUGIN", "")
    if wanted.lower() == "none":
        return
    names = [w for w in wanted.split(",") if w]
    missing = [n for n in names if not {n, f"libnccl-net-{n}.so"} & here]
    offered = ", ".join(sorted(n for n in here if "/" not in n)) or "none"
    if missing and len(missing) == len(names):
        opened = ", ".join(f"{n} and libnccl-net-{n}.so" for n in missing)
        yield fail(
            "nccl_net_plugin_not_found",
            about(var="NCCL_NET_PLUGIN"),
            f"NCCL would open {opened}, and none is there: it goes on over TCP and says nothing",
            'set NCCL_NET="AWS Libfabric", which makes a missing plugin an error, and leave'
            " NCCL_NET_PLUGIN out or set it to ofi",
            value=wanted,
            found=offered,
        )
    elif not names and _needs_plugin(env, place) and "libnccl-net.so" not in here:
        yield fail(
            "nccl_net_plugin_not_found",
            about(var="NCCL_NET"),
            f"NCCL looks for libnccl-net.so, and the readable plugins are: {offered}",
            "load the site's aws-ofi-nccl module, or put its lib directory on LD_LIBRARY_PATH",
            found=offered,
        )


def _needs_plugin(env: Mapping[str, str], place: EnvContext) -> bool:
    return place.fabric in ("slingshot", "efa") or env.get("NCCL_NET", "").lower() in (
        "aws libfabric",
        "libfabric",
        "ofi",
    )


def _alt_read(env: Mapping[str, str], place: EnvContext) -> Iterator[Finding]:
    """HPE shs-ccl-docs: the alternative rendezvous needs the job's `--network=disable_rdzv_get`."""
    if env.get("FI_CXI_RDZV_PROTO") != "alt_read" or place.slurm_network is None:
        return
    if place.fabric not in (None, "slingshot"):
        return
    if "disable_rdzv_get" not in (w.strip() for w in place.slurm_network.split(",")):
        yield fail(
            "cxi_alt_read_needs_network_option",
            about(slurm="--network"),
            "FI_CXI_RDZV_PROTO=alt_read works only in a job that was submitted with"
            f" --network=disable_rdzv_get, and SLURM_NETWORK is {place.slurm_network!r}",
            "submit with --network=disable_rdzv_get, or leave FI_CXI_RDZV_PROTO out",
            slurm_network=place.slurm_network,
        )


_GRACE = ("GH200", "GB200", "GB300")
_RENDEZVOUS = ("FI_CXI_RDZV_THRESHOLD", "FI_CXI_RDZV_GET_MIN", "FI_CXI_RDZV_EAGER_SIZE")


def _gdrcopy(env: Mapping[str, str], place: EnvContext) -> Iterator[Finding]:
    """nccl#2001 and shs-ccl-docs PR#21: gdrcopy with the LL128 protocol over Slingshot on Grace
    Hopper gives wrong data and says nothing. Any of three settings avoids it.
    """
    names = [
        n
        for n in ("NCCL_GDRCOPY_ENABLE", "FI_HMEM_CUDA_USE_GDRCOPY")
        if env.get(n, "0").lower() not in _OFF
    ]
    on_grace = any(g in place.gpu.upper() for g in _GRACE)
    if not names or place.fabric not in (None, "slingshot") or not on_grace:
        return
    zeros = all(env.get(n) == "0" for n in _RENDEZVOUS)
    if zeros or env.get("NCCL_LL128_C2C") == "0" or not _allows_ll128(env.get("NCCL_PROTO")):
        return
    yield fail(
        "gdrcopy_ll128_corruption",
        about(var=names[0]),
        f"{names[0]}={env[names[0]]} with the LL128 protocol on {place.gpu} gives wrong data"
        " without any message",
        "set NCCL_PROTO=^LL128, or NCCL_LL128_C2C=0, or the three FI_CXI_RDZV sizes to 0, or leave"
        " gdrcopy out",
        value=env[names[0]],
    )


def _allows_ll128(value: str | None) -> bool:
    """NCCL_PROTO: a list of what is allowed, or after ^ of what is not."""
    if not value:
        return True
    listed = "LL128" in (v.strip().upper() for v in value.lstrip("^").split(","))
    return not listed if value.startswith("^") else listed


def _multi_node_nvlink(env: Mapping[str, str], place: EnvContext) -> Iterator[Finding]:
    """NCCL src/transport/mnnvl.cc: it needs cuMem and a cluster UUID, which HGX boards lack."""
    if env.get("NCCL_MNNVL_ENABLE") != "1":
        return
    domain = place.multi_node_nvlink
    if domain is None and place.gpu:
        domain = any(g in place.gpu.upper() for g in _GRACE)
    why = ""
    if env.get("NCCL_CUMEM_ENABLE") == "0":
        why = "NCCL_CUMEM_ENABLE=0 turns it off"
    elif domain is False:
        why = "these GPUs have no NVLink to other nodes"
    if why:
        yield warn(
            "mnnvl_no_effect",
            about(var="NCCL_MNNVL_ENABLE"),
            f"NCCL_MNNVL_ENABLE=1 does nothing: {why}",
            "leave it out; it is meant for GB200 and GB300",
        )


def _nvls(env: Mapping[str, str], place: EnvContext) -> Iterator[Finding]:
    """NVLink SHARP is in the NVSwitches of Hopper and newer (NCCL src/transport/nvls.cc)."""
    old = any(word in place.gpu.upper() for word in ("A100", "A800", "V100", "L40", "PCIE", "A30"))
    if env.get("NCCL_NVLS_ENABLE") == "1" and old:
        yield warn(
            "nvls_no_effect",
            about(var="NCCL_NVLS_ENABLE"),
            f"NCCL_NVLS_ENABLE=1 does nothing on {place.gpu}, which has no NVLink SHARP",
            "leave it out",
        )


def _timeout(env: Mapping[str, str]) -> Iterator[Finding]:
    if "NCCL_TIMEOUT" in env:
        yield warn(
            "nccl_timeout_unread",
            about(var="NCCL_TIMEOUT"),
            "NCCL_TIMEOUT is read by neither NCCL nor PyTorch",
            "set --distributed-timeout-minutes of the trainer",
            value=env["NCCL_TIMEOUT"],
        )
