"""What scored selectors share: attention weights over keys, and the best positions by a score."""

from __future__ import annotations

import torch
from torch import Tensor

from magicdec.kernels.candidates import Candidates
from magicdec.kernels.search import KeySearch

#: Queries whose logits over all keys are held at once.
BLOCK = 64


def attention_weights(keys: Tensor, queries: Tensor) -> Tensor:
    """softmax(q·k / √D) of the last queries over a row's keys, causal: [H, w, S], float32.

    keys: [Hkv, S, D]; queries: [H, w, D], of the positions S - w .. S - 1.
    """
    kv_heads, length, dim = keys.shape
    heads, window, _ = queries.shape
    # Scaled here, not as logits: there are far more of those.
    grouped = queries.reshape(kv_heads, -1, dim).float() * dim**-0.5  # [Hkv, group·w, D]
    logits = (grouped @ keys.float().transpose(1, 2)).view(heads, window, length)
    # Only the window's own positions can lie in a query's future.
    future = torch.ones(window, window, dtype=torch.bool, device=keys.device).triu(1)
    logits[:, :, length - window :].masked_fill_(future, -torch.inf)
    weights: Tensor = logits.softmax(dim=-1)
    return weights


def attention_mass(keys: Tensor, queries: Tensor) -> Tensor:
    """The weight that every position gets, summed over the queries and a KV head's query heads.

    Shapes as in `attention_weights`; returns [Hkv, S].
    """
    kv_heads, length, _ = keys.shape
    total = torch.zeros(kv_heads, length, dtype=torch.float32, device=keys.device)
    first = length - queries.shape[1]
    for block in queries.split(BLOCK, dim=1):
        seen = first + block.shape[1]  # keys that the block's last query sees
        weights = attention_weights(keys[:, :seen], block)
        total[:, :seen] += weights.sum(dim=1).view(kv_heads, -1, seen).sum(dim=1)
        first = seen
    return total


def keep_best(scores: Tensor, budget: int, *, sinks: int = 0, recent: int = 0) -> Tensor:
    """The best-scored positions, with the first `sinks` and the last `recent` among them.

    scores: [Hkv, S], larger is better; returns int64 [Hkv, min(budget, S)], sorted. When the
    budget is too small for both, recent positions win.
    """
    row = Candidates(0, (scores.shape[1],), scores.device)
    kept = KeySearch().best(scores[None].clone(), row, budget, sinks=sinks, recent=recent)[0]
    return kept.sort(dim=1).values
