"""The text of the sandbox's configuration files, from its Spec; pure.

Every key is documented in slurm.conf(5), gres.conf(5), cgroup.conf(5) or topology.conf(5).
"""

from __future__ import annotations

from pathlib import Path

from slurmmiles.hostlist import fold
from slurmmiles.sandbox.layout import (
    LOGIN_ADDRESS,
    LOGIN_NAME,
    Machine,
    SandboxDir,
    Spec,
    node_address,
)

NODES_PER_SWITCH = 4


def slurm_conf(where: SandboxDir, spec: Spec, machine: Machine) -> str:
    """slurm.conf: a login node, the nodes, a partition `main` and one, `high`, that preempts it."""
    lines = [*_daemons(where), *_behaviour(spec), *_machine(machine)]
    lines += ["GresTypes=gpu"] if spec.gpus else []
    lines += ["TopologyPlugin=topology/tree"] if spec.topology else []
    return "\n".join([*lines, *_nodes(spec), ""])


def _daemons(where: SandboxDir) -> list[str]:
    return [
        "ClusterName=sandbox",
        f"SlurmctldHost={LOGIN_NAME}({LOGIN_ADDRESS})",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={where.munge_socket}",
        "CredType=cred/munge",
        f"StateSaveLocation={where.root}/state",
        f"SlurmctldPidFile={where.root}/state/slurmctld.pid",
        f"SlurmctldLogFile={where.log}/slurmctld.log",
        f"SlurmdSpoolDir={where.node('%n')}/spool",
        f"SlurmdPidFile={where.slurmd_pid('%n')}",
        f"SlurmdLogFile={where.log}/slurmd.%n.log",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={where.completions}",
    ]


def _behaviour(spec: Spec) -> list[str]:
    """What a job meets; the timeouts are short, so that a lost node is noticed in seconds."""
    return [
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SlurmdParameters=config_overrides",  # more CPUs and memory than this machine has
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "AccountingStorageType=accounting_storage/none",
        "JobAcctGatherType=jobacct_gather/none",
        "ReturnToService=2",  # a node that comes back is used again without an administrator
        "JobRequeue=1",
        "SlurmctldTimeout=30",
        f"SlurmdTimeout={spec.slurmd_timeout}",
        "MessageTimeout=3",
        "TCPTimeout=1",
        "KillWait=5",
        "InactiveLimit=0",
        "MinJobAge=600",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=5",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
    ]


def _machine(machine: Machine) -> list[str]:
    # linuxproc loses a daemon that left its session; cgroups do not, as on a production cluster.
    tracker = "linuxproc" if machine.cgroup == "none" else "cgroup"
    # A preempted job gets its --signal before its grace time ends; 23.02 moved the parameter.
    moved = machine.slurm >= (23, 2)
    signal = "Preempt" if moved else "Slurmctld", "send" if moved else "preempt_send"
    return [
        f"ProctrackType=proctrack/{tracker}",
        f"{signal[0]}Parameters={signal[1]}_user_signal",
        # Numbering from 1 again would meet the files of old jobs in folders named by job id.
        f"FirstJobId={machine.first_job_id}",
    ]


def _nodes(spec: Spec) -> list[str]:
    names = fold(spec.names)
    addresses = fold([node_address(name) for name in spec.names])
    sockets = 2 if spec.cpus % 2 == 0 else 1
    cores = f"Sockets={sockets} CoresPerSocket={spec.cpus // sockets} ThreadsPerCore=1"
    gres = f" Gres=gpu:{spec.gpus}" if spec.gpus else ""
    size = f"{cores} RealMemory={spec.memory_mb}{gres} State=UNKNOWN"
    low = "Default=YES PriorityTier=10 PreemptMode=REQUEUE GraceTime=20"
    high = "PriorityTier=100 PreemptMode=OFF"
    return [
        f"NodeName={names} NodeAddr={addresses} {size}",
        f"PartitionName=main Nodes={names} MaxTime=INFINITE State=UP {low}",
        f"PartitionName=high Nodes={names} MaxTime=INFINITE State=UP {high}",
    ]


def gres_conf(where: SandboxDir, spec: Spec) -> str:
    """gres.conf: GPUs are character devices; plain files would leave CUDA_VISIBLE_DEVICES empty."""
    if not spec.gpus:
        return ""
    devices = f"{where.root}/dev/nvidia[0-{spec.gpus - 1}]"
    return f"NodeName={fold(spec.names)} Name=gpu File={devices}\n"


def cgroup_conf(machine: Machine) -> str:
    """cgroup.conf: cgroups track a job's processes and constrain nothing (no size is real)."""
    lines = ["CgroupMountpoint=/sys/fs/cgroup"]
    lines += [f"Constrain{what}=no" for what in ("Cores", "RAMSpace", "Devices")]
    if machine.cgroup == "v2":
        lines += ["IgnoreSystemd=yes"]  # a node has no systemd that could make slurmd a scope
    if machine.cgroup == "none" and machine.slurm >= (24, 5):
        lines += ["CgroupPlugin=disabled"]
    return "\n".join([*lines, ""])


def topology_conf(spec: Spec) -> str:
    """topology.conf: a spine above leaf switches of four nodes each."""
    starts = range(0, spec.nodes, NODES_PER_SWITCH)
    leaves = {
        f"leaf{i:02d}": spec.names[start : start + NODES_PER_SWITCH]
        for i, start in enumerate(starts, 1)
    }
    lines = [f"SwitchName={leaf} Nodes={fold(names)}" for leaf, names in leaves.items()]
    return "\n".join([*lines, f"SwitchName=spine Switches={fold(leaves)}", ""])


def hosts(spec: Spec) -> str:
    """/etc/hosts: loopback, the login node, every node."""
    lines = [f"{node_address(name)} {name}" for name in (LOGIN_NAME, *spec.names)]
    return "\n".join(["127.0.0.1 localhost", *lines, ""])


def client(where: SandboxDir, path: Path) -> str:
    """A wrapper that runs the Slurm client at `path` on the login node, in the caller's directory.

    It strips its own folder from PATH: sbatch exports PATH, and a job must meet the node's own
    programs. The start time guards against a recycled PID (proc_pid_stat(5), field 22).
    """
    return f"""#!/bin/bash
# {path.name} of the slurmmiles sandbox in {where.root}
read -r pid start 2>/dev/null <{where.login_pid}
read -r stat 2>/dev/null </proc/${{pid:-none}}/stat
fields=(${{stat##*) }})
if [[ -z $start || ${{fields[19]}} != "$start" ]]; then
  echo "{path.name}: no sandbox is up in {where.root}; start it: slurmmiles sandbox up" >&2
  exit 1
fi
PATH=${{PATH//"{where.bin}:"/}}
exec nsenter -t "$pid" -m -u -i -n -p -- \\
  env -C "$PWD" SLURM_CONF={where.slurm_conf} {path} "$@"
"""


def sacct(where: SandboxDir, python: str, package: Path) -> str:
    """The stand-in for sacct(1), which does not answer without slurmdbd."""
    return f"""#!/bin/bash
# sacct without slurmdbd: from slurmctld and, for older jobs, {where.completions}
export PYTHONPATH={package}
exec {python} -m slurmmiles.sandbox.sacct {where.root} "$@"
"""
