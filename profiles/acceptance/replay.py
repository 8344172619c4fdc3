"""How speculative decoding walks through a known text. Numbers only; `Kept` comes from `forced`.

Given that token x was emitted after some text, it was an accepted draft with probability
min(1, q(x) / p(x)): speculative sampling emits x as an accepted draft with probability
min(p(x), q(x)), and with p(x) in all (Leviathan et al., arXiv 2211.17192). Whether the tokens of a
step were accepted is then independent from token to token, so that the expected number of steps
over a given text follows exactly. Greedy decoding is the case in which each probability is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from magicdec.engine.drafters.ngram import continuation
from magicdec.profiles.acceptance.rates import AcceptanceCounts

#: [n]: the chance that each token after a row's first one was an accepted draft, had it been
#: drafted.
Kept = NDArray[np.float64]


def walk(kept: Kept, gamma: int) -> AcceptanceCounts:
    """Expected counts of one row: its first token is there, each step drafts γ tokens and adds one
    of the target's.

    As in a run, a step near the end drafts no more than it can use.
    """
    tokens = len(kept)  # that steps have to emit
    drafted, accepted = np.zeros(gamma), np.zeros(gamma)
    visits = np.zeros(tokens + 1)  # expected steps that begin after so many of them
    visits[0] = 1.0
    for start in range(tokens):
        width = min(gamma, tokens - 1 - start)
        # reach[j]: the chance that the step accepts at least j tokens
        reach = np.concatenate(([1.0], np.cumprod(kept[start : start + width])))
        drafted[:width] += visits[start]
        accepted[:width] += visits[start] * reach[1:]
        ends = reach - np.append(reach[1:], 0.0)  # ends[j]: that it accepts exactly j
        visits[start + 1 : start + width + 2] += visits[start] * ends
    return AcceptanceCounts(tuple(drafted.tolist()), tuple(accepted.tolist()))


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
