"""How prompt lookup walks through a known text: exactly, because it depends on tokens alone.

What a step drafts follows from the text before it, and a one-hot draft is accepted where it equals
the token that was emitted: greedily, and with sampling too, whose accepted drafts are those that
were drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from magicdec.engine.ngram import continuation
from magicdec.profiles.costs.acceptance import AcceptanceCounts


@dataclass(frozen=True, slots=True)
class Row:
    """tokens: what was emitted, the first of them by the prefill."""

    prompt: Sequence[int]
    tokens: Sequence[int]


def lookup_walk(row: Row, gamma: int) -> AcceptanceCounts:
    """Counts of the steps that draft; others emit one token each."""
    text = np.array([*row.prompt, *row.tokens], np.int64)
    drafted, accepted = np.zeros(gamma), np.zeros(gamma)
    at, end = len(row.prompt) + 1, len(text)
    while at < end:
        width = min(gamma, end - at - 1)  # a step adds one token of the target's
        draft = continuation(text[:at], width) if width else []
        hits = leading(draft, text[at : at + width].tolist())
        drafted[: len(draft)] += 1
        accepted[:hits] += 1
        at += hits + 1
    return AcceptanceCounts(tuple(drafted.tolist()), tuple(accepted.tolist()))


def lookup_hits(row: Row) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of each token after the first: 1 where lookup would have drafted it next, else 0."""
    text = np.array([*row.prompt, *row.tokens], np.int64)
    places = range(len(row.prompt) + 1, len(text))
    return np.array([float(continuation(text[:at], 1) == [text[at]]) for at in places])


def leading(draft: Sequence[int], text: Sequence[int]) -> int:
    """How many of the draft's tokens the text begins with."""
    hits = 0
    for token, said in zip(draft, text, strict=False):
        if token != said:
            break
        hits += 1
    return hits
