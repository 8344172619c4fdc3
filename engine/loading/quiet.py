"""Keeping libraries that log to the terminal out of the product's display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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
