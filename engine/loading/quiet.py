"""Keeping libraries that log to the terminal out of the product's display."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any


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
