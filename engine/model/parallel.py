"""Preparing a model's layers on all cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

T = TypeVar("T")

_MOST_WORKERS = 8  # more would only wait for the memory


def in_parallel(make: Callable[[int], T], count: int) -> list[T]:
    """[make(0), ..., make(count - 1)], several at a time.

    Stacking and reordering a weight is bound by page faults and copies that torch does on one
    core. One layer per thread, each with torch's own threading off, is two to three times faster.
    """
    threads = torch.get_num_threads()
    workers = min(threads, _MOST_WORKERS, count)
    try:
        with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1)) as pool:
            return list(pool.map(make, range(count)))
    finally:
        torch.set_num_threads(threads)  # what a thread sets is also the default of later threads
