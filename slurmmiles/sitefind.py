"""Which site this machine belongs to, and why: by name, by a file of the user's own, by the login
node's host name, by Slurm's ClusterName, by the network, else generic.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from shutil import which

from slurmmiles import shell
from slurmmiles.catalog import Catalog
from slurmmiles.errors import MissingTool
from slurmmiles.nics import NodeNics
from slurmmiles.site import Site
from slurmmiles.sysfs import read_node
from slurmmiles.systree import DiskTree, Tree

GENERIC, LAPTOP, SANDBOX = "generic", "laptop", "sandbox"
ENV_NAME = "SLURMMILES_SITE"
BY_FABRIC = {
    "infiniband": "generic-ib",
    "roce": "generic-roce",
    "slingshot": "generic-slingshot",
    "efa": "aws-efa",
}
SLURM_CONF = "/etc/slurm/slurm.conf"
TELLS = re.compile(r"^(host_pattern|cluster_name):", re.MULTILINE)
ASK_S = 5.0


def choose_site(
    catalog: Catalog,
    name: str | None,
    *,
    local: bool = False,
    env: Mapping[str, str] | None = None,
) -> Site:
    """The site called `name`, else by SLURMMILES_SITE, else the one that `detect` finds; without
    Slurm (`local`) only `name` counts.
    """
    wanted = name or (LAPTOP if local else (env or {}).get(ENV_NAME))
    return catalog.site(wanted or detect(catalog)[0])


def detect(catalog: Catalog, tree: Tree | None = None) -> tuple[str, str]:
    """The site's name and why it was chosen; `tree` holds the kernel's files of this machine.

    A name server and slurmctld are asked only when a site wants to know: they may be slow.
    """
    own, sites = _candidates(catalog)
    by_host = any(site.host_pattern for site in sites.values())
    host = socket.getfqdn() if by_host else socket.gethostname()
    cluster = cluster_name() if any(site.cluster_name for site in sites.values()) else ""
    for name, site in sites.items():
        if site.host_pattern and re.search(site.host_pattern, host):
            return name, f"the host name {host} matches its host_pattern {site.host_pattern}"
        if site.cluster_name and site.cluster_name == cluster:
            return name, f"Slurm's ClusterName is {cluster}"
    if len(own) == 1:
        return own[0], f"it is the only site file of yours: {sites[own[0]].file}"
    if which("sbatch") is None:
        return GENERIC, "there is no sbatch on PATH, and no site's host_pattern matches"
    fabric, why = network_here(tree)
    if fabric in BY_FABRIC:
        return BY_FABRIC[fabric], f"no site matches {host}, and {why}"
    return GENERIC, f"no site's host_pattern or cluster_name matches {host}, and {why}"


def _candidates(catalog: Catalog) -> tuple[list[str], dict[str, Site]]:
    """The user's own sites, and all that could be told by a name; the user's first.

    The many shipped ones that name nothing are not loaded.
    """
    shipped = catalog.roots[-1].resolve()
    files = catalog.files("sites")
    own = [n for n, f in files.items() if not f.resolve().is_relative_to(shipped)]
    named = [n for n, f in files.items() if n not in own and TELLS.search(f.read_text("utf-8"))]
    return own, {name: catalog.site(name) for name in (*own, *named)}


def network_here(tree: Tree | None = None) -> tuple[str, str]:
    """The kind of network between GPUs that this machine has, and why it is called that."""
    nics = read_node(tree or DiskTree())
    return nics.fabric, fabric_reason(nics)


def fabric_reason(nics: NodeNics) -> str:
    """Why the network is called what it is."""
    ports = nics.compute
    if not ports or nics.fabric == "ethernet":
        return "no InfiniBand, RoCE, Slingshot or EFA port for compute is seen here"
    named = ", ".join(f"{n.name} ({n.link_layer or n.kind.value})" for n in ports[:8])
    return f"its compute ports are {named}"


def cluster_name() -> str:
    """Slurm's ClusterName, from slurm.conf where it can be read, else from slurmctld."""
    text = DiskTree().text(SLURM_CONF) or ""
    found = re.search(r"^\s*ClusterName\s*=\s*(\S+)", text, re.MULTILINE | re.IGNORECASE)
    if found:
        return found[1]
    try:
        said = shell.run(["scontrol", "show", "config"], timeout=ASK_S).stdout
    except MissingTool:
        return ""
    found = re.search(r"^ClusterName\s*=\s*(\S+)", said, re.MULTILINE)
    return found[1] if found else ""
