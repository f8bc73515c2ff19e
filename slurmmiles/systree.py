"""A tree of small kernel files (/sys, /proc) to read from: the machine's own, one below another
root, or one that was saved as text, so that the same readers serve a node, a test and a replay.

The saved form is a line a file, `PATH = CONTENT`; `DIR/ = NAME` says that DIR has an entry NAME,
and `PATH -> REAL` that PATH is a link to REAL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Tree(Protocol):
    """What a reader of kernel files needs; nothing here raises for a file that is not there."""

    def text(self, path: str) -> str | None:
        """The content without surrounding blanks; None when it is not there or not readable."""

    def entries(self, path: str) -> tuple[str, ...]:
        """The names in a directory in natural order; empty when it is not there."""

    def real(self, path: str) -> str:
        """`path` with links resolved."""

    def exists(self, path: str) -> bool:
        """Whether something is at `path`."""


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts mlx5_2 before mlx5_10; numbers of any length compare without int()."""
    parts = (p.lstrip("0") if p.isdecimal() else p for p in re.split(r"(\d+)", name) if p)
    return tuple((len(p), p) if p.isdecimal() or not p else (-1, p) for p in parts)


@dataclass(frozen=True, slots=True)
class DiskTree:
    """The files below `root`; links that lead out of `root` are kept as they are written."""

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        try:
            return self._at(path).read_text(errors="replace").strip()
        except (OSError, ValueError):
            return None

    def entries(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self._at(path)), key=natural))
        except (OSError, ValueError):
            return ()

    def real(self, path: str) -> str:
        real = os.path.realpath(self._at(path))
        root = os.path.realpath(self.root)
        below = os.path.relpath(real, root)
        return real if below.startswith("..") else "/" + ("" if below == "." else below)

    def exists(self, path: str) -> bool:
        return self._at(path).exists()

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


class TextTree:
    """A saved tree. Lines that are neither of the three forms are kept in `unread`."""

    def __init__(
        self, files: dict[str, str], links: dict[str, str], unread: tuple[str, ...] = ()
    ) -> None:
        self._files, self._links, self.unread = files, links, unread
        self._children: dict[str, set[str]] = {}
        for path in (*files, *links):
            self._add(path.rstrip("/"))
            if path.endswith("/"):
                for name in files[path].split():
                    self._add(f"{path}{name}")

    @classmethod
    def parse(cls, text: str, **whole: str) -> TextTree:
        """The tree of `text`; never raises. `whole`: more files by path, kept as they are."""
        files: dict[str, str] = dict(whole)
        links: dict[str, str] = {}
        unread: list[str] = []
        for line in text.splitlines():
            row = line.strip()
            if not row or row.startswith("#"):
                continue
            path, equals, content = f"{row} ".partition(" = ")
            link, arrow, target = row.partition(" -> ")
            path, link = path.rstrip(), link.rstrip()
            if equals and _is_path(path):
                content = content.strip()
                known = files.get(path) if path.endswith("/") else None
                files[path] = f"{known} {content}" if known else content
            elif arrow and _is_path(link) and _is_path(target.strip()):
                links[link] = target.strip()
            else:
                unread.append(row)
        return cls(files, links, tuple(unread))

    def files(self) -> tuple[tuple[str, str], ...]:
        """Each file that was saved, with its content."""
        return tuple((p, c) for p, c in self._files.items() if not p.endswith("/"))

    def text(self, path: str) -> str | None:
        if path in self._files:
            return self._files[path]
        return self._files.get(self.real(path))

    def entries(self, path: str) -> tuple[str, ...]:
        path = path.rstrip("/")
        names = self._children.get(path, set()) | self._children.get(self.real(path), set())
        return tuple(sorted(names, key=natural))

    def real(self, path: str) -> str:
        parts = path.rstrip("/").split("/")
        for end in range(len(parts), 1, -1):
            target = self._links.get("/".join(parts[:end]))
            if target:
                return "/".join([target.rstrip("/"), *parts[end:]])
        return path

    def exists(self, path: str) -> bool:
        path = path.rstrip("/")
        return any(p in self._files or p in self._children for p in (path, self.real(path)))

    def _add(self, path: str) -> None:
        """Register `path` and each directory above it."""
        while path and path != "/":
            self._children.setdefault(path, set())
            above, _, name = path.rpartition("/")
            self._children.setdefault(above, set()).add(name)
            path = above


def _is_path(text: str) -> bool:
    return text.startswith("/") and len(text) > 1 and " " not in text


def saved(tree: Tree, files: Iterable[str], links: Iterable[str] = ()) -> str:
    """The named files and links of `tree` in the saved form; what is not there is left out."""
    lines = []
    for path in links:
        if (real := tree.real(path)) != path:
            lines.append(f"{path} -> {real}")
    for path in files:
        content = tree.text(path)
        if content is not None:
            lines.append(f"{path} = {' '.join(content.split())}")
    return "\n".join(lines) + "\n"
