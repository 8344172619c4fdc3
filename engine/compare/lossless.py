"""Checks that the speculative text is the plain one; where not: a tie, or a bug."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.accept.penalties import make_penalties
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import PREFILL_CHUNK, prefill
from magicdec.engine.compare.verdict import Divergence, Losslessness, first_difference
from magicdec.engine.config import SamplingConfig
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.request import Request
from magicdec.engine.rows import Said
from magicdec.kernels.attention import AttentionBackend

#: A gap up to this many roundings is a tie: each run's logits are off by one, and its K/V are too.
ROUNDINGS = 4.0
UNPENALISED = SamplingConfig()


def compare(
    model: Decoder,
    backend: AttentionBackend,
    requests: Sequence[Request],
    plain: Sequence[Sequence[int]],
    speculative: Sequence[Sequence[int]],
    *,
    width: int,
    kv_dtype: torch.dtype | None = None,
    sampling: SamplingConfig = UNPENALISED,
) -> Losslessness:
    """Compares outputs row by row; sampled ones are not checked.

    width: tokens of a verify pass, γ + 1; kv_dtype: what both runs stored K and V in, the model's
    unless given; sampling: whose penalties they had.

    Where rows differ, the logits are computed again from the text alone, in a fresh cache, so
    that a damaged cache cannot excuse itself.
    """
    if not sampling.greedy:
        return Losslessness(
            checked=False,
            reason="sampled text differs by design; the guarantee is the distribution",
        )
    found = []
    for request, a, b in zip(requests, plain, speculative, strict=True):
        at = first_difference(a, b)
        if at is not None:
            found.append(_explain(model, backend, request, a, b, at, width, kv_dtype, sampling))
    return Losslessness(checked=True, divergences=tuple(found))


def _explain(
    model: Decoder,
    backend: AttentionBackend,
    request: Request,
    plain: Sequence[int],
    speculative: Sequence[int],
    at: int,
    width: int,
    kv_dtype: torch.dtype | None,
    sampling: SamplingConfig,
) -> Divergence:
    ours, theirs = (out[at] if at < len(out) else None for out in (plain, speculative))
    if ours is None or theirs is None:  # one stopped where the other went on
        return Divergence(request.row, at, ours, theirs, float("inf"), 0.0)
    prompt, said = list(request.tokens), list(plain[:at])
    cache = KVCache(model, backend, rows=1, capacity=len(prompt) + at + width, dtype=kv_dtype)
    for _ in prefill(model, cache, 0, prompt, chunk=PREFILL_CHUNK):
        pass
    # The same token's logits from a plain step and from a verify pass, each over K and V that
    # came from passes of another width, too: storing them rounds what is off by little further.
    cache.lengths[0] -= 1
    fed = torch.tensor([prompt[-1:] + said], device=model.device)  # the last one gives the logits
    narrow = _last_logits(model, cache, fed, max(1, fed.shape[1] - 1), 1)
    wide = _last_logits(model, cache, fed, width, width)
    largest = float(narrow.abs().max())
    penalties = make_penalties(
        sampling, slots=1, vocabulary=model.spec.vocab_size, device=model.device
    )
    if penalties is not None:  # what was compared, and what their roundings came to there
        text = Said(request, 0, said)
        narrow, wide = (
            penalties.apply([text], logits[None, None], [])[0, 0] for logits in (narrow, wide)
        )
        largest = max(largest, float(narrow.abs().max()))
    epsilon = torch.finfo(model.dtype).eps * largest
    rounding = max(float((narrow - wide).abs().max()), epsilon)
    gap = float(narrow[ours] - narrow[theirs])
    return Divergence(request.row, at, ours, theirs, gap, ROUNDINGS * rounding)


def _last_logits(model: Decoder, cache: KVCache, fed: Tensor, block: int, width: int) -> Tensor:
    """Feeds all of fed [1, n] but its last token in blocks, then that in a pass of `width`.

    Returns its logits [V]; the cache's valid length stays what it was.
    """
    start = cache.lengths[0]
    for part in fed[:, :-1].split(block, dim=1):
        if part.shape[1]:
            model.forward(part, cache.following([0], part.shape[1]))
            cache.advance([0], [part.shape[1]])
    logits = model.forward(fed[:, -1:].expand(1, width), cache.following([0], width))
    cache.lengths[0] = start
    return logits[0, 0].float()
