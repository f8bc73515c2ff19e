"""Which of NCCL's network plugins can be loaded here, as NCCL itself would: by dlopen(3) of a bare
name, with the environment of the run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from slurmmiles import shell

PLUGINS = ("libnccl-net-cassini.so", "libnccl-net-ofi.so", "libnccl-net.so")
LOAD_S = 30.0
# In a process of its own: a plugin's constructors may print, start threads, or crash.
_LOAD = """
import ctypes, os, sys
for name in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        try:
            ctypes.CDLL(name)
        except OSError:
            os._exit(1)
        with open("/proc/self/maps") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
        found = [p for p in paths if p.rpartition("/")[2].startswith(name)]
        os.write(1, f"{name}\\t{(found or [name])[0]}\\n".encode())
        os._exit(0)
    os.waitpid(pid, 0)
"""


def net_plugins(env: Mapping[str, str]) -> dict[str, str]:
    """Library name to the path that was loaded; empty when none can be."""
    argv = [sys.executable, "-c", _LOAD, *PLUGINS]
    done = shell.run(argv, env=env, timeout=LOAD_S)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in PLUGINS}
