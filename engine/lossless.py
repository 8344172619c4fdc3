"""Is the speculative text really the plain text? And if not: a tie, or a bug?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from magicdec.engine.cache import KVCache
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.prefill import PREFILL_CHUNK, prefill
from magicdec.engine.request import Request
from magicdec.engine.verdict import Divergence, Losslessness, first_difference
from magicdec.kernels.attention import AttentionBackend

#: A gap up to this many roundings is a tie: each run's logits are off by one, and its K/V are too.
ROUNDINGS = 4.0


def compare(
    model: Decoder,
    backend: AttentionBackend,
    requests: Sequence[Request],
    plain: Sequence[Sequence[int]],
    speculative: Sequence[Sequence[int]],
    *,
    width: int,
) -> Losslessness:
    """Compares greedy outputs row by row. width: tokens of a verify pass, γ + 1.

    Where rows differ, the logits are computed again from the text alone, in a fresh cache, so
    that a damaged cache cannot excuse itself.
    """
    found = []
    for request, a, b in zip(requests, plain, speculative, strict=True):
        at = first_difference(a, b)
        if at is not None:
            found.append(_explain(model, backend, request, a, b, at, width))
    return Losslessness(checked=True, divergences=tuple(found))


def _explain(
    model: Decoder,
    backend: AttentionBackend,
    request: Request,
    plain: Sequence[int],
    speculative: Sequence[int],
    at: int,
    width: int,
) -> Divergence:
    ours, theirs = (out[at] if at < len(out) else None for out in (plain, speculative))
    if ours is None or theirs is None:  # one stopped where the other went on
        return Divergence(request.row, at, ours, theirs, float("inf"), 0.0)
    prompt, said = list(request.tokens), list(plain[:at])
    cache = KVCache(model, backend, rows=1, capacity=len(prompt) + at + width)
    for _ in prefill(model, cache, 0, prompt, chunk=PREFILL_CHUNK):
        pass
    if len(said) > 1:
        model.forward(
            torch.tensor([said[:-1]], device=model.device), cache.following([0], len(said) - 1)
        )
    cache.lengths[0] = len(prompt) + len(said) - 1
    # The same token's logits from a plain step and from a verify pass.
    last = torch.tensor([(prompt + said)[-1:]], device=model.device)
    narrow = model.forward(last, cache.following([0], 1))[0, 0].float()
    wide = model.forward(last.expand(1, width), cache.following([0], width))[0, 0].float()
    epsilon = torch.finfo(model.dtype).eps * float(narrow.abs().max())
    rounding = max(float((narrow - wide).abs().max()), epsilon)
    gap = float(narrow[ours] - narrow[theirs])
    return Divergence(request.row, at, ours, theirs, gap, ROUNDINGS * rounding)
