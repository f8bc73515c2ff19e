"""JSON files that others read while we write: whole or not at all, by write-then-rename."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from slurmmiles.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)
_NOT_JSON = (OSError, ValueError, RecursionError)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Put `text` at `path` in one step: a reader sees the old file or the new one.

    OSError as the system gives it, and then the old file is untouched.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path: Path, value: Any) -> None:
    """`value` (a pydantic model, or what json takes) as indented JSON."""
    write_text(path, to_json(value) + "\n")


def to_json(value: Any) -> str:
    """Indented JSON; NaN and infinities, which JSON does not have (RFC 8259, 6), become null."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return json.dumps(_finite(data), indent=2, allow_nan=False, default=str)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return data


def read_json(path: Path) -> Any:
    """The value, or None when the file is not there (yet) or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except _NOT_JSON:
        return None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a .jsonl file; a last line that is still being written is left out."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    records = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except _NOT_JSON:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def read_model(path: Path, model: type[Model]) -> Model:
    """The file as `model`; BadInput when it is not there or was written by another version."""
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read this file: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(
            "this file is not what this version of slurmmiles writes"
            f" ({': '.join([*map(str, first['loc']), first['msg']])})",
            where=str(path),
            fix="use the version that wrote it, or submit again",
        ) from error
