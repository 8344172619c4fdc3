"""Reading the small files of a model folder."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ConfigError, ModelError
from magicdec.engine.untrusted import plain_words

LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes that file systems take
SMALL, LARGE = 16 * 2**20, 256 * 2**20  # bytes: no configuration, no vocabulary has as many


def user_path(text: str) -> Path:
    """A path as somebody wrote it, `~` expanded. Raises ConfigError where it can be none."""
    written = os.fsencode(text)
    if len(written) > LONGEST_PATH or any(len(n) > LONGEST_NAME for n in written.split(b"/")):
        raise ConfigError(f"{text:.40}... is too long for a name or a path; check it")
    try:
        return Path(text).expanduser()
    except RuntimeError:  # there is no such user
        raise ConfigError(f"{text!r}: nobody here is called so; write the folder out") from None


def check_file(path: Path, most: int | None = None) -> None:
    """Raises ModelError for what is there and is no file proper, which may never end or never
    answer, or is larger than any such file; links are followed."""
    try:
        status = path.stat()
    except OSError:
        return  # whoever reads it says so
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        kind = "a pipe" if stat.S_ISFIFO(status.st_mode) else "a device"
        raise ModelError(f"{path} is {kind} and no file; copy or download the model again")
    if most is not None and status.st_size > most:
        raise ModelError(
            f"{path} has {status.st_size:,} bytes, more than any such file ({most:,}); copy or "
            "download the model again"
        )


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`. Raises ModelError when it is missing or holds something else."""
    check_file(path, SMALL)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
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


def quiet_transformers() -> AbstractContextManager[None]:
    """Silences transformers' warnings, which repeat what a ModelError says better."""
    from transformers.utils import logging

    return _quiet(logging)


def quiet_hub() -> AbstractContextManager[None]:
    """Silences huggingface_hub's warnings."""
    from huggingface_hub.utils import logging

    return _quiet(logging)


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def quiet_panics() -> Iterator[None]:
    """Keeps what a library in Rust writes to the file of stderr when it panics; Python's own hook
    hears of it too late. Where the block succeeds, what was written meanwhile follows it."""
    with ExitStack() as cleanup:
        try:
            stderr = os.dup(2)
            cleanup.callback(os.close, stderr)
            held = cleanup.enter_context(tempfile.TemporaryFile())
        except OSError:  # it is closed, or there is no room to hold anything
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
        held.seek(0)
        if said := held.read():
            os.write(2, said)
