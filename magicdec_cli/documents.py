"""Checks of the documents that need no model, so that a typing mistake shows at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from magicdec.engine.errors import ConfigError, require

BUILTIN = "builtin:pydoc"


def check_documents(sources: Sequence[str]) -> None:
    """Raises ConfigError for what certainly cannot be read."""
    require(len(sources) > 0, f"no document was given; name a file, - for stdin, or {BUILTIN}")
    require(sources.count("-") <= 1, "- (stdin) can be given once")
    for source in sources:
        if source == "-":
            continue
        if source.startswith("builtin:"):
            require(source == BUILTIN, f"no document is called {source!r}; there is {BUILTIN}")
            continue
        _check_file(Path(source))


def _check_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; name the files in it")
        if not path.exists():
            raise ConfigError(f"no file {path}; name a file, - for stdin, or {BUILTIN}")
        if not os.access(path, os.R_OK):
            raise ConfigError(f"{path} cannot be read; check its permissions")
        if path.is_file() and path.stat().st_size == 0:
            raise ConfigError(f"{path} is empty; name a document with text")
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{str(path)!r} cannot be read: {error}") from error
