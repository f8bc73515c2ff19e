"""What a run block of shell text says: its flags, exports, variables and Ray commands; pure.

A reader of the plain shell that recipes are written in, not a shell: quotes, escapes, comments,
assignments, `$NAME` and `${NAME...}`. Line numbers count from 1 within the block.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

FlagText = str | tuple[str, ...] | bool
_ASSIGNED = re.compile(
    r"(?:^|(?<=[\s;&|(]))([A-Za-z_]\w*)(?:\[[^]\s]*\])?\+?=(?!=)"
    r"|\bread\s+(?:-\w+\s+)*([A-Za-z_]\w*)|\bfor\s+([A-Za-z_]\w*)\s+in\b"
    r"|\b(?:mapfile|readarray)\s+(?:-\w+\s+)*([A-Za-z_]\w*)",
    re.ASCII | re.MULTILINE,
)
_REFERENCE = re.compile(r"\$(?:\{[#!]?([A-Za-z_]\w*)([^}]?.?)|([A-Za-z_]\w*))", re.ASCII)
_ARRAY = re.compile(r"\$\{\w+\[[@*]\]\}")
# Given by bash itself, by every login, or by the agent to the driver.
PROVIDED = frozenset(
    (
        "BASH", "BASHPID", "BASH_SOURCE", "BASH_VERSION", "EUID", "FUNCNAME", "HOME", "HOSTNAME",
        "IFS", "LANG", "LINENO", "LOGNAME", "MASTER_ADDR", "OLDPWD", "OPTARG", "OPTIND", "OSTYPE",
        "PATH", "PIPESTATUS", "PPID", "PWD", "RANDOM", "RAY_ADDRESS", "REPLY", "SECONDS", "SHELL",
        "UID", "USER",
    )
)  # fmt: skip
_CLUSTER = re.compile(r"(?:^|[;&|]\s*)\s*(?:ray\s+(?:start|stop)|pkill|killall)\b")
_HARMLESS = re.compile(r"^(?:ray\s+(?:start|stop)\b.*|pkill\b.*|killall\b.*|sleep\b.*|true|:)?$")


def logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, text) with continued lines joined."""
    start, parts = 1, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        yield start, number, "".join([*parts, line])
        start, parts = number + 1, []
    if parts:
        yield start, start + len(parts) - 1, "".join(parts)


def words_of(line: str) -> list[str]:
    """The line's words without quotes; split at blanks where a quote is not closed in it."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def flags_of(text: str) -> dict[str, FlagText]:
    """The flags of the training command: the logical line with the most of them."""
    lines = [words_of(line) for _, _, line in logical_lines(text)]
    words = max(lines, key=lambda ws: sum(w.startswith("--") for w in ws), default=[])
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = [value] if equals else []
        elif _ARRAY.fullmatch(word):
            name = ""  # another list of flags begins here
        elif name:
            found[name].append(word)
    return {n: v[0] if len(v) == 1 else tuple(v) if v else True for n, v in found.items()}


def exports_of(text: str) -> dict[str, str]:
    """`export NAME=VALUE` lines, the value as written without its quotes."""
    found: dict[str, str] = {}
    for _, _, line in logical_lines(text):
        words = words_of(line)
        if words[:1] == ["export"]:
            pairs = (word.partition("=") for word in words[1:])
            found |= {name: value for name, equals, value in pairs if equals}
    return found


def model_type_of(text: str) -> str | None:
    """The MODEL_TYPE whose flags miles' model_args_utils.py prints in the block."""
    found = re.search(r"model_args_utils\.py\s+([\w.-]+)", text)
    return found[1] if found else None


def undefined_variables(text: str) -> tuple[str, ...]:
    """Variables that the block needs and does not set itself, in order of use."""
    plain = _without_quoted(text)
    assigned = [(next(g for g in m.groups() if g), m.end()) for m in _ASSIGNED.finditer(plain)]
    needed: dict[str, None] = {}
    for match in _REFERENCE.finditer(plain):
        name = match[1] or match[3]
        default = match[1] and re.match(r":?[-=+]", match[2] or "")
        if default or name in PROVIDED or _is_set(plain, name, match.start(), assigned):
            continue
        needed[name] = None
    return tuple(needed)


def _is_set(text: str, name: str, at: int, assigned: list[tuple[str, int]]) -> bool:
    """Whether an assignment of `name` is complete before position `at`: `X=$X/y` is not."""
    return any(
        other == name and end < at and re.search(r"[\s;&|]", text[end:at])
        for other, end in assigned
    )


def _without_quoted(text: str) -> str:
    """The text with comments, escaped characters and single-quoted strings blanked, same length."""
    out, i, double = list(text), 0, False
    while i < len(text):
        c = text[i]
        if c == "\\" and i + 1 < len(text):
            out[i] = " " if text[i + 1] == "\n" else "_"
            out[i + 1] = out[i]
            i += 2
            continue
        if c == '"':
            double = not double
        elif c == "'" and not double:
            end = text.find("'", i + 1)
            end = len(text) - 1 if end < 0 else end
            out[i : end + 1] = "_" * (end + 1 - i)
            i = end
        elif c == "#" and not double and (i == 0 or text[i - 1].isspace()):
            end = text.find("\n", i)
            end = len(text) if end < 0 else end
            out[i:end] = " " * (end - i)
            i = end
            continue
        i += 1
    return "".join(out)


def cluster_commands(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """(first line, last line, command, alone) of what would start, stop or kill processes.

    `alone`: the line does nothing else, so that leaving it out changes nothing else.
    """
    for first, last, line in logical_lines(text):
        bare = line.strip()
        if _CLUSTER.search(_without_quoted(bare)):
            parts = re.split(r"\s*(?:;|&&|\|\||\||&)\s*", bare)
            yield first, last, bare, all(_HARMLESS.fullmatch(part) for part in parts)


def without_lines(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with each span of lines replaced by a command that does nothing, line by line."""
    lines = text.splitlines()
    for first, last in spans:
        for number in range(first - 1, last):
            was = lines[number].rstrip("\\").strip()
            lines[number] = f": # left out by slurmmiles: {was}"
    return "\n".join(lines) + "\n"


def substituted(text: str, values: dict[str, str]) -> str:
    """`$NAME` and `${NAME}` replaced where the value is known."""
    return re.sub(
        r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))",
        lambda m: values.get(m[1] or m[2], m[0]),
        text,
        flags=re.ASCII,
    )
