from __future__ import annotations

import pytest

from slurmmiles.nodeenv import no_proxy, node_env
from slurmmiles.planfile import EnvValue

TABLE = {
    "GLOO_SOCKET_IFNAME": EnvValue(value="{interface}", origin="node"),
    "PATH": EnvValue(value="/plan/bin", origin="site s"),
}
VALUES = {"interface": "ib0"}


def test_the_plan_wins_over_slurms_environment_and_ours_over_the_plan() -> None:
    inherited = {"PATH": "/usr/bin", "HOME": "/h", "RAY_AUTH_MODE": "none"}
    env = node_env(inherited, TABLE, VALUES, {"RAY_AUTH_MODE": "token"})
    assert env == {
        "PATH": "/plan/bin",
        "HOME": "/h",
        "GLOO_SOCKET_IFNAME": "ib0",
        "RAY_AUTH_MODE": "token",
    }


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_PROCID",
        "SLURMD_NODENAME",
        "PMI_RANK",
        "PMIX_RANK",
        "PMI2_ID",
        "OMPI_COMM_WORLD_RANK",
        "MPI_LOCALRANKID",
        "SUBMITIT_EXECUTOR",
        "SLURMMILES_PLAN",
        "RAY_ADDRESS",
        "RAY_RUNTIME_ENV_HOOK",
    ],
)
def test_no_ray_worker_believes_that_srun_started_it(name: str) -> None:
    assert name not in node_env({name: "1"}, {}, {}, {})


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "MY_SLURM_HINT", "NCCL_DEBUG"])
def test_what_the_user_exported_is_kept(name: str) -> None:
    assert node_env({name: "1"}, {}, {}, {}) == {name: "1"}


def test_the_users_proxy_exceptions_come_first_and_nothing_twice() -> None:
    both = no_proxy({"no_proxy": "corp,n1"}, ["n1", "n2"], ["10.0.0.1", "10.0.0.1"])
    assert both == "corp,n1,localhost,127.0.0.1,n2,10.0.0.1"
    assert no_proxy({"NO_PROXY": "corp,,"}, [], []) == "corp,localhost,127.0.0.1"
    assert no_proxy({}, [], []) == "localhost,127.0.0.1"
