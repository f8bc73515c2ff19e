"""Which site this machine belongs to: by name, by the login node's host name, else generic."""

from __future__ import annotations

import re
import socket
from shutil import which

from slurmmiles.catalog import Catalog
from slurmmiles.site import Site

GENERIC, LAPTOP, SANDBOX = "generic", "laptop", "sandbox"


def choose_site(catalog: Catalog, name: str | None, *, local: bool = False) -> Site:
    """The site called `name`, or the one that `detect` finds."""
    return catalog.site(name or (LAPTOP if local else detect(catalog)[0]))


def detect(catalog: Catalog) -> tuple[str, str]:
    """The site's name and why it was chosen."""
    patterns = {name: catalog.site(name).host_pattern for name in catalog.files("sites")}
    # Asked only when a site wants to know: the answer may take a name server's patience.
    host = socket.getfqdn() if any(patterns.values()) else socket.gethostname()
    for name, pattern in patterns.items():
        if pattern and re.search(pattern, host):
            return name, f"the host name {host} matches its host_pattern {pattern}"
    if which("sbatch") is None:
        return GENERIC, "there is no sbatch on PATH, and no site's host_pattern matches"
    return GENERIC, f"no site's host_pattern matches {host}"
