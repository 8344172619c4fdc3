"""Finds what followed the same words earlier in a text. Tokens only, no torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from magicdec.engine.config import LOOKUP_TOKENS


def continuation(text: NDArray[np.int64], count: int) -> list[int]:
    """`count` tokens that followed the latest earlier occurrence of the text's end, or none.

    The longest end of LOOKUP_TOKENS that occurred before decides. What follows may run into the
    end itself; then the text repeats itself, and so does the draft.
    """
    least, most = LOOKUP_TOKENS
    for size in range(min(most, len(text) - 1), least - 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
        matches = np.flatnonzero((windows == text[-size:]).all(axis=1))
        if len(matches):
            start = int(matches[-1]) + size
            period = len(text) - start
            return [int(text[start + i % period]) for i in range(count)]
    return []
