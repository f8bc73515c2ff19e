"""Every error that a user can cause, with the exit code that the command line ends with.

    SlurmmilesError
    ├── BadInput        2   a recipe, site, key, path or plan that cannot work; nothing was
    submitted
    │   └── MissingTool 2   a program or package that this command needs is not installed
    ├── UnfitNodes      3   nodes that must not be used, each named with its reason
    ├── SlurmRefused    4   Slurm (or its absence) refused the request; carries Slurm's own words
    ├── RunFailed       5   the run started and failed
    └── RunTimedOut     6   the run ended by its time limit, a preemption or a signal

Each carries three parts that a reader needs: what is wrong, where (file:line, node, setting), and
what to do.
"""

from __future__ import annotations


class SlurmmilesError(Exception):
    """An error for a person: `what` is wrong, `where`, the `fix`; `exit_code` is the process's."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what, where, fix)
        self.what, self.where, self.fix = what, where, fix

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.fix))

    def __str__(self) -> str:
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        return f"{sentence}; {self.fix}" if self.fix else sentence


def _rebuild(kind: type[SlurmmilesError], what: str, where: str, fix: str) -> SlurmmilesError:
    return kind(what, where=where, fix=fix)


class BadInput(SlurmmilesError):
    """Input that cannot work, found before anything was submitted."""

    exit_code = 2


class MissingTool(BadInput):
    """A program or a package that is not installed here."""


class UnfitNodes(SlurmmilesError):
    """Nodes that failed preflight or never joined; the message names each with its reason."""

    exit_code = 3


class SlurmRefused(SlurmmilesError):
    """Slurm rejected the job or cannot be reached."""

    exit_code = 4


class RunFailed(SlurmmilesError):
    """The run started and did not succeed."""

    exit_code = 5


class RunTimedOut(SlurmmilesError):
    """The run was ended by its time limit, a preemption or a signal."""

    exit_code = 6


def did_you_mean(word: str, known: list[str]) -> str:
    """`did you mean 'x'?` with the closest known word, else the list of known words."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
