"""Does a site file fit this machine? Judges are pure: the site against what Slurm and PATH show."""

from __future__ import annotations

from collections.abc import Iterator

from slurmmiles.report import Finding, Verdict
from slurmmiles.site import Site
from slurmmiles.siteinit import Seen


def judge_site(site: Site, seen: Seen) -> Iterator[Finding]:
    """One finding for each thing that both the site and the machine speak of; what the machine does
    not show (no sinfo, no accounting) is not judged.
    """
    yield _found(site, "site", f"site {site.name}, {site.file}", True)
    yield from _asks(site)
    if seen.cluster and site.cluster_name:
        yield _found(
            site,
            "site_cluster",
            f"Slurm's ClusterName is {seen.cluster}",
            site.cluster_name == seen.cluster,
            f"the site is for {site.cluster_name}",
        )
    if seen.partitions:
        yield from _partition(site, seen)
    accounts = [a.account for a in seen.accounts]
    if accounts and site.account:
        yield _found(
            site,
            "site_account",
            f"you may charge {', '.join(accounts)}",
            site.account in accounts,
            f"`account` {site.account} is none of them",
        )
    if (
        site.container
        and seen.runtime
        and site.container.runtime in ("pyxis", "apptainer", "podman")
    ):
        yield _found(
            site,
            "site_container",
            f"this machine shows {seen.runtime}",
            site.container.runtime == seen.runtime,
            f"`container.runtime` is {site.container.runtime}",
            soft=True,
        )


def _asks(site: Site) -> Iterator[Finding]:
    given = {"account": site.account, "partition": site.partition, "qos": site.qos}
    given |= {"constraint": site.constraint, "gpu": site.gpu}
    open_ = [k for k in site.ask if k not in given or given[k] is None]
    if open_:
        yield Finding(
            code="site_asks",
            verdict=Verdict.WARN,
            subject=site.name,
            message=f"each submission must say: {', '.join(open_)}",
            remedy="write them into a site file of your own: `slurmmiles sites init`",
        )


def _partition(site: Site, seen: Seen) -> Iterator[Finding]:
    names = list(dict.fromkeys(p.name for p in seen.partitions))
    wanted = site.partition or next((p.name for p in seen.partitions if p.is_default), "")
    if wanted:
        yield _found(
            site,
            "site_partition",
            f"Slurm has the partitions {', '.join(names)}",
            wanted in names,
            f"`partition` {wanted} is none of them",
        )
    nodes = [p for p in seen.partitions if p.name == wanted]
    most = max((p.gpus for p in nodes), default=0)
    if nodes and site.gpus_per_node is not None and site.gpu_request != "none":
        yield _found(
            site,
            "site_gpus",
            f"nodes of {wanted} have {most} GPUs",
            site.gpus_per_node <= most,
            f"`gpus_per_node` is {site.gpus_per_node}",
        )


def _found(
    site: Site, code: str, said: str, ok: bool, otherwise: str = "", *, soft: bool = False
) -> Finding:
    bad = Verdict.WARN if soft else Verdict.FAIL
    return Finding(
        code=code,
        verdict=Verdict.PASS if ok else bad,
        subject=site.name,
        message=said if ok else f"{otherwise}, and {said}",
        remedy="" if ok else f"mend it in {site.file or 'the site file'}",
    )
