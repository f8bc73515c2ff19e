"""Environments and plugins in a folder: other values of the same kinds."""

from __future__ import annotations

import pytest

from tests.unit.preflight.made import CXI, judged

ALLOC = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
COLOCATE = "expandable_segments_with_colocate"
ENVS: dict[str, tuple[dict[str, str], str, set[str]]] = {
    "not colocated": ({"env.txt": ALLOC, "job.txt": "colocate=false\n"}, "PASS", set()),
    "not colocated and nothing offloaded": (
        {"env.txt": ALLOC, "job.txt": "colocate=false\noffload_train=false\n"},
        "PASS",
        set(),
    ),
    "only offloaded": (
        {"env.txt": ALLOC, "job.txt": "colocate=false\noffload_train=true\n"},
        "FAIL",
        {COLOCATE},
    ),
    "the newer name": (
        {
            "env.txt": "PYTORCH_ALLOC_CONF=max_split_size_mb:64, expandable_segments:true\n",
            "job.txt": "colocate=1\n",
        },
        "FAIL",
        {COLOCATE},
    ),
    "segments that are off": (
        {
            "env.txt": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n",
            "job.txt": "colocate=true\n",
        },
        "PASS",
        set(),
    ),
    "nobody says whether it is colocated": ({"env.txt": ALLOC}, "WARN", {"expandable_segments"}),
    "a timeout that nobody reads": (
        {"env.txt": "NCCL_TIMEOUT=1800\n"},
        "WARN",
        {"nccl_timeout_unread"},
    ),
    "multi-node NVLink without cuMem": (
        {"env.txt": "NCCL_MNNVL_ENABLE=1\nNCCL_CUMEM_ENABLE=0\n"},
        "WARN",
        {"mnnvl_no_effect"},
    ),
    "multi-node NVLink on GB200": (
        {"env.txt": "NCCL_MNNVL_ENABLE=1\n", "gpus.csv": "0, NVIDIA GB200\n"},
        "PASS",
        set(),
    ),
    "NVLS on an A100": (
        {"env.txt": "NCCL_NVLS_ENABLE=1\n", "gpus.csv": "0, NVIDIA A100-SXM4-40GB\n"},
        "WARN",
        {"nvls_no_effect"},
    ),
    "an exclusion without lo": (
        {"env.txt": "NCCL_SOCKET_IFNAME=^docker,virbr\n"},
        "WARN",
        {"ifname_exclusion_readmits_lo"},
    ),
    "names for Gloo": ({"env.txt": "GLOO_SOCKET_IFNAME=eth0,ib0.8001\n"}, "PASS", set()),
    "an exact list for Gloo": (
        {"env.txt": "GLOO_SOCKET_IFNAME==eth0\n"},
        "FAIL",
        {"gloo_ifname_not_a_name"},
    ),
    "a blank in a list for Gloo": (
        {"env.txt": "GLOO_SOCKET_IFNAME=eth0, eth1\n"},
        "FAIL",
        {"gloo_ifname_not_a_name"},
    ),
    "one letter, which PyTorch ignores": ({"env.txt": "GLOO_SOCKET_IFNAME=^\n"}, "PASS", set()),
    "comments and export": ({"env.txt": "# the site's\nexport NCCL_DEBUG=WARN\n"}, "PASS", set()),
    "a line that sets nothing": (
        {"env.txt": "NCCL_DEBUG=WARN\nunset NCCL_NET\n"},
        "UNKNOWN",
        {"evidence_unreadable"},
    ),
    "gdrcopy with LL128 on GH200": (
        {"env.txt": "FI_HMEM_CUDA_USE_GDRCOPY=1\n", "gpus.csv": "0, NVIDIA GH200 120GB\n"},
        "FAIL",
        {"gdrcopy_ll128_corruption"},
    ),
    "gdrcopy without LL128": (
        {
            "env.txt": "NCCL_GDRCOPY_ENABLE=1\nNCCL_PROTO=^LL128\n",
            "gpus.csv": "0, NVIDIA GH200 120GB\n",
        },
        "PASS",
        set(),
    ),
    "gdrcopy on another chip": (
        {"env.txt": "NCCL_GDRCOPY_ENABLE=1\n", "gpus.csv": "0, NVIDIA H100 80GB HBM3\n"},
        "PASS",
        set(),
    ),
    "an old CUDA": ({"versions.txt": "cuda 12.2\nnccl 2.27.5\n"}, "FAIL", {"version_too_old"}),
}


@pytest.mark.parametrize("name", ENVS)
def test_environments(name: str) -> None:
    files, verdict, codes = ENVS[name]
    assert judged(files)[:2] == (verdict, codes)


LIBS = "# readable plugins\n/opt/lib/libnccl-net.so\n/opt/lib/libnccl-net-ofi.so\n"
PLUGINS: dict[str, tuple[str, str, str, set[str]]] = {
    "the right way": ("NCCL_NET=AWS Libfabric\n", LIBS, "PASS", set()),
    "by its short name": ("NCCL_NET_PLUGIN=ofi\n", LIBS, "PASS", set()),
    "by its path": ("NCCL_NET_PLUGIN=/opt/lib/libnccl-net-ofi.so\n", LIBS, "PASS", set()),
    "no plugin wanted": ("NCCL_NET_PLUGIN=none\n", LIBS, "PASS", set()),
    "cassini that is there": (
        "NCCL_NET_PLUGIN=cassini\n",
        "/opt/cray/lib/libnccl-net-cassini.so\n",
        "PASS",
        set(),
    ),
    "another that is not there": (
        "NCCL_NET_PLUGIN=aws-ofi\n",
        LIBS,
        "FAIL",
        {"nccl_net_plugin_not_found"},
    ),
    "no plugin on the node": (
        "NCCL_NET=AWS Libfabric\n",
        "# none\n",
        "FAIL",
        {"nccl_net_plugin_not_found"},
    ),
}


@pytest.mark.parametrize("name", PLUGINS)
def test_plugins_on_slingshot(name: str) -> None:
    env, libs, verdict, codes = PLUGINS[name]
    assert judged({"env.txt": env, "libs.txt": libs, "sysfs.txt": CXI})[:2] == (verdict, codes)


@pytest.mark.parametrize(
    ("slurm", "verdict"),
    [
        ("SLURM_JOB_ID=7\nSLURM_NETWORK=disable_rdzv_get\n", "PASS"),
        ("SLURM_NETWORK=single_node_vni,disable_rdzv_get\n", "PASS"),
        ("SLURM_NETWORK=job_vni\n", "FAIL"),
        ("SLURM_JOB_ID=7\n", "FAIL"),
    ],
)
def test_alternative_rendezvous_needs_the_jobs_option(slurm: str, verdict: str) -> None:
    files = {"env.txt": "FI_CXI_RDZV_PROTO=alt_read\n", "slurm.txt": slurm, "sysfs.txt": CXI}
    found = judged(files)
    assert found[0] == verdict
    assert found[1] == ({"cxi_alt_read_needs_network_option"} if verdict == "FAIL" else set())
