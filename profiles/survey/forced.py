"""Teacher forcing: what a model says of each token of a text that is given to it.

The text's K/V are in the target's cache, so that a draft's view of it is known at every token, and
one pass prices many tokens. In a run a token drafted as the j-th of its step saw the draft's own
K/V of j tokens and the target's before those. Which tokens begin a step is not known here, and
differs from γ to γ: a draft begins at every `BLOCK`-th token. This is the survey's one
approximation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from torch import Tensor

from magicdec.engine.cache import KVCache
from magicdec.engine.config import MAX_GAMMA, SamplingConfig
from magicdec.engine.model.decoder import Decoder, KVAccess
from magicdec.engine.sampling import distribution
from magicdec.kernels.transfer import to_device
from magicdec.profiles.survey.replay import Kept
from magicdec.profiles.survey.trace import TracedRow
from magicdec.profiles.survey.unrolled import Unrolled

BLOCK = 4

#: Tokens of a row in one pass: a cache has scratch for so many, and memory forecasts know it.
WIDTH = MAX_GAMMA


def target_chances(
    model: Decoder, cache: KVCache, rows: Sequence[TracedRow], sampling: SamplingConfig
) -> list[Kept]:
    """The target's probability of each row's tokens after its first: [fed] each.

    Writes the text's K/V to the cache anew: rows of one prompt may have swapped slots.
    """
    for row in rows:
        cache.lengths[row.slot] = row.prompt

    def read(part: Sequence[TracedRow], start: int, width: int) -> KVAccess:
        slots = [row.slot for row in part]
        access = cache.following(slots, width)
        cache.advance(slots, [min(width, row.fed - start) for row in part])
        return access

    return _chances(model, rows, sampling, WIDTH, read)


def draft_chances(
    model: Decoder, view: Unrolled, rows: Sequence[TracedRow], sampling: SamplingConfig,
    block: int = BLOCK,
) -> list[Kept]:  # fmt: skip
    """The draft's, which sees the text through `view`. model: with the weights that draft.

    Under greedy decoding that is 1 for the likeliest token and 0 for others.
    """

    def read(part: Sequence[TracedRow], start: int, width: int) -> KVAccess:
        return view.access(part, start, width, block)

    return _chances(model, rows, sampling, WIDTH // block * block, read)


def kept(target: Sequence[Kept], draft: Sequence[Kept]) -> list[Kept]:
    """What each token's chance of being an accepted draft is, see `replay`.

    Rounding may put a token that was drawn at the edge of top-k or top-p just outside: p is 0 then.
    """
    least = np.finfo(np.float64).tiny
    return [np.minimum(1.0, q / np.maximum(p, least)) for p, q in zip(target, draft, strict=True)]


def _chances(
    model: Decoder, rows: Sequence[TracedRow], sampling: SamplingConfig, width: int,
    read: Callable[[Sequence[TracedRow], int, int], KVAccess],
) -> list[Kept]:  # fmt: skip
    """read: the cache for so many tokens of some rows' texts from one on."""
    found = [np.empty(row.fed) for row in rows]
    for start, new, active in _passes(rows, width):
        part = [rows[i] for i in active]
        # Rows that end within the pass are filled up; what follows a token does not change it.
        spans = [_span(row.tokens, start, new + 1) for row in part]
        tokens = to_device(spans, model.device)  # [n, T + 1]
        logits = model.forward(tokens[:, :-1], read(part, start, new))  # [n, T, V]
        of_tokens = _of_tokens(logits, tokens[:, 1:], sampling).cpu().numpy()
        for i, values in zip(active, of_tokens, strict=True):
            count = min(new, rows[i].fed - start)
            found[i][start : start + count] = values[:count]
    return found


def _passes(rows: Sequence[TracedRow], width: int) -> Iterator[tuple[int, int, list[int]]]:
    """First token, number of tokens and the rows that are not over, of each pass."""
    longest = max(row.fed for row in rows)
    for start in range(0, longest, width):
        active = [i for i, row in enumerate(rows) if row.fed > start]
        yield start, min(width, longest - start), active


def _span(tokens: Sequence[int], start: int, width: int) -> list[int]:
    part = list(tokens[start : start + width])
    return part + part[-1:] * (width - len(part))


def _of_tokens(logits: Tensor, tokens: Tensor, sampling: SamplingConfig) -> Tensor:
    """logits [n, T, V], tokens [n, T] -> float64 [n, T]."""
    if sampling.greedy:
        return (logits.argmax(dim=-1) == tokens).double()
    return distribution(logits, sampling).gather(2, tokens[..., None])[..., 0].double()
