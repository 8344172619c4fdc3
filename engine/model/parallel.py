"""Preparing a model's parts on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

_MOST_WORKERS = 8  # more would only wait for the memory


def in_parallel(makers: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each maker makes, in their order, several at a time; put the longest first.

    Stacking and reordering a weight is bound by page faults and copies that torch does on one
    core. One part per thread, each with torch's own threading off, is two to three times faster.
    """
    threads = torch.get_num_threads()
    workers = min(threads, _MOST_WORKERS, len(makers))
    try:
        with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1)) as pool:
            return list(pool.map(lambda make: make(), makers))
    finally:
        torch.set_num_threads(threads)  # what a thread sets is also the default of later threads
