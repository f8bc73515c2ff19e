"""Short ways to write a finding, and the form of a subject: `node`, `gpu=5`, `node=n02,gpu=3`."""

from __future__ import annotations

from slurmmiles.report import Finding, Verdict

Scalar = str | int | float | bool | None
UNREADABLE = "evidence_unreadable"


def fail(code: str, subject: str, message: str, remedy: str, **evidence: Scalar) -> Finding:
    """The subject must not be used as it is."""
    return _finding(Verdict.FAIL, code, subject, message, remedy, evidence)


def warn(code: str, subject: str, message: str, remedy: str, **evidence: Scalar) -> Finding:
    """Worth a person's look; the run may start."""
    return _finding(Verdict.WARN, code, subject, message, remedy, evidence)


def unknown(code: str, subject: str, message: str, remedy: str, **evidence: Scalar) -> Finding:
    """It could not be judged: never a PASS, and never a reason to leave a node out."""
    return _finding(Verdict.UNKNOWN, code, subject, message, remedy, evidence)


def info(code: str, subject: str, message: str, **evidence: Scalar) -> Finding:
    """A PASS with something to know; its code ends in `_info`."""
    return _finding(Verdict.PASS, code, subject, message, "", evidence)


def unreadable(name: str, why: str, where: str = "") -> Finding:
    """Evidence that is there and cannot be read as what it should be."""
    return unknown(
        UNREADABLE,
        about(node=where, file=name),
        f"{name} cannot be judged: {why}",
        f"gather {name} again and look at what the tool printed",
    )


def _finding(
    verdict: Verdict,
    code: str,
    subject: str,
    message: str,
    remedy: str,
    evidence: dict[str, Scalar],
) -> Finding:
    return Finding(
        code=code,
        verdict=verdict,
        subject=subject,
        message=message,
        remedy=remedy,
        evidence=evidence,
    )


def about(*, node: str = "", **parts: str | int) -> str:
    """A subject: the parts that are not empty as `key=value`; `node` for the node that is here."""
    named = {"node": node, **parts}
    return ",".join(f"{key}={value}" for key, value in named.items() if value != "") or "node"


def node_of(subject: str) -> str | None:
    """The node that a subject speaks of, None when it speaks of no single one."""
    if "=" not in subject:
        return None if "->" in subject or subject == "node" else subject
    parts = dict(part.partition("=")[::2] for part in subject.split(","))
    return parts.get("node")
