"""Reading the small files of a model folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ConfigError, ModelError
from magicdec.engine.harmless import plain_words

LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes that file systems take


def user_path(text: str) -> Path:
    """A path as somebody wrote it, `~` expanded. Raises ConfigError where it can be none."""
    written = os.fsencode(text)
    if len(written) > LONGEST_PATH or any(len(n) > LONGEST_NAME for n in written.split(b"/")):
        raise ConfigError(f"{text:.40}... is too long for a name or a path; check it")
    try:
        return Path(text).expanduser()
    except RuntimeError:  # there is no such user
        raise ConfigError(f"{text!r}: nobody here is called so; write the folder out") from None


def read_file(path: Path) -> str:
    """Its text. Raises OSError for a pipe or a device, too, whose reading might never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError("it is a pipe or a device, no file")
    return path.read_text(encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`. Raises ModelError when it is missing or holds something else."""
    try:
        data = json.loads(read_file(path))
    except FileNotFoundError:
        raise ModelError(
            f"{path.parent} has no {path.name}; give a folder written by save_pretrained, "
            "or a .gguf file"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read ({one_line(error)}); copy or download the model again"
        ) from None
    if not isinstance(data, dict):
        raise ModelError(f"{path} holds no JSON object; copy or download the model again")
    return data


def read_json_if_any(path: Path) -> dict[str, Any]:
    """As `read_json`, but a missing file reads as an empty object."""
    return read_json(path) if os.path.exists(path) else {}


def one_line(error: BaseException, limit: int = 200) -> str:
    """The text of a library's error, fit for a one-line message."""
    return " ".join(plain_words(error).split())[:limit] or type(error).__name__
