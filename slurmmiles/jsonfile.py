"""JSON files that others read while we write: whole or not at all, by write-then-rename."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from slurmmiles.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Put `text` at `path` in one step; a reader sees the old file or the new one. OSError as the
    system gives it.
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
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    write_text(path, json.dumps(data, indent=2, allow_nan=False, default=str) + "\n")


def read_json(path: Path) -> Any:
    """The value, or None when the file is not there (yet) or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
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
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def read_model(path: Path, model: type[Model]) -> Model:
    """The file as `model`; BadInput when it is not there or was written by another version."""
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read this file: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(
            "this file is not what this version of slurmmiles writes"
            f" ({'.'.join(map(str, first['loc']))}: {first['msg']})",
            where=str(path),
            fix="use the version that wrote it, or submit again",
        ) from error
