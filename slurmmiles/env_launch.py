"""Environment values on their way to the workers: through a launcher's parser, through Ray, past a
proxy. Pure.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence

from slurmmiles.findings import about, fail
from slurmmiles.report import Finding

# Names whose right value may differ from node to node.
PER_NODE = frozenset(
    {
        "NCCL_IB_HCA",
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "TP_SOCKET_IFNAME",
        "NCCL_IB_GID_INDEX",
        "NVSHMEM_HCA_LIST",
        "NVSHMEM_IB_GID_INDEX",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
        "UCX_NET_DEVICES",
        "SGLANG_HOST_IP",
        "TMPDIR",
        "NCCL_TOPO_FILE",
    }
)


def plain_extra_env(text: str) -> dict[str, str]:
    """What miles keeps of `--extra-env-vars`: JSON whole, else the plain form with its losses.

    The plain form is cut at blanks and at every `=`, and the second piece is taken for the value
    (miles command_utils.py, _parse_extra_env_vars); IndexError, as there, for a piece without `=`.
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        pieces = [item.split("=") for item in text.split(" ") if item.strip()]
        return {piece[0]: piece[1] for piece in pieces}
    if not isinstance(parsed, dict):
        raise TypeError("the JSON form must be an object of names and values")
    return {str(name): str(value) for name, value in parsed.items()}


def plain_form(env: Mapping[str, str]) -> str:
    """`A=1 B=2`, as a person would write it on the command line."""
    return " ".join(f"{name}={value}" for name, value in env.items())


def judge_extra_env(wanted: Mapping[str, str], text: str | None = None) -> list[Finding]:
    """env_value_lost_in_launcher for each value that does not arrive as it was meant.

    `text` is what is given to the launcher; None: the plain form of `wanted`.
    """
    findings = []
    for name, value in wanted.items():
        # One at a time where the text is our own, so that one bad value does not hide the others.
        given = plain_form({name: value}) if text is None else text
        try:
            seen = plain_extra_env(given).get(name)
        except (IndexError, TypeError) as error:
            seen, why = None, f"stops the launcher ({type(error).__name__})"
        else:
            why = f"arrives as {seen!r}" if seen is not None else "does not arrive"
        if seen != value:
            findings.append(
                fail(
                    "env_value_lost_in_launcher",
                    about(var=name),
                    f"{name}={value} {why}: the plain form is cut at blanks and at every =",
                    'pass the values as JSON, --extra-env-vars \'{"NAME": "VALUE"}\'',
                    wanted=value,
                    arrives=seen,
                )
            )
    return findings


def judge_env_on_worker(
    node: str,
    wanted: Mapping[str, str],
    seen: Mapping[str, str | None],
    forwarded: Iterable[str] = (),
) -> list[Finding]:
    """env_missing_on_worker and env_differs_on_worker, by what a task on `node` really has.

    `forwarded` are names that the trainer itself copies from the head: they arrive, though with
    the head's values.
    """
    copied = set(forwarded)
    missing = [n for n in wanted if seen.get(n) is None and n not in copied]
    other = [
        n for n in wanted if seen.get(n) is not None and seen[n] != wanted[n] and n not in PER_NODE
    ]
    findings = []
    if missing:
        findings.append(
            fail(
                "env_missing_on_worker",
                about(node=node),
                f"a worker there does not have {', '.join(missing)}",
                "export the resolved environment before `ray start` on every node; what the trainer"
                " reads where it creates actors goes into the job's runtime environment",
                missing=",".join(missing),
            )
        )
    if other:
        findings.append(
            fail(
                "env_differs_on_worker",
                about(node=node),
                "; ".join(f"{n} is {seen[n]!r} there and should be {wanted[n]!r}" for n in other),
                "find what sets it on the node: a profile script, a module, a container image",
                differs=",".join(other),
            )
        )
    return findings


PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def judge_proxy(env: Mapping[str, str], hosts: Sequence[str]) -> list[Finding]:
    """proxy_covers_cluster when a proxy is set and some node's name or address is not exempt.

    Programs read `no_proxy` or `NO_PROXY`, so each that is set must name every host; ranges (CIDR)
    are not counted, because many clients do not read them.
    """
    named = {n: env[n] for p in PROXIES for n in (p, p.upper()) if env.get(n)}
    lists = {n: env[n] for n in ("no_proxy", "NO_PROXY") if n in env}
    if not named or not hosts:
        return []
    open_to = {
        name: [h for h in hosts if not exempt(h, value)] for name, value in lists.items()
    } or {"no_proxy": list(hosts)}
    caught = {name: left for name, left in open_to.items() if left}
    if not caught:
        return []
    name, left = next(iter(caught.items()))
    return [
        fail(
            "proxy_covers_cluster",
            about(var=name),
            f"calls between nodes would go through the proxy: {name} does not name"
            f" {', '.join(left[:4])}" + (f" and {len(left) - 4} more" if len(left) > 4 else ""),
            "put every node's name and address into no_proxy and NO_PROXY",
            proxy=next(iter(named)),
            missing=len(left),
        )
    ]


def exempt(host: str, no_proxy: str) -> bool:
    """Whether a client that reads names, suffixes and `*` would not use a proxy for `host`."""
    for entry in no_proxy.split(","):
        word = entry.strip().lower()
        if word == "*" or (word and host.lower() == word.lstrip(".")):
            return True
        suffix = word.lstrip("*").lstrip(".")
        if suffix and not suffix[0].isdigit() and fnmatch.fnmatch(host.lower(), f"*.{suffix}"):
            return True
    return False
