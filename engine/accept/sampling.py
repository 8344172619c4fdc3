"""From logits to the distribution a token is drawn from, and the draw itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from magicdec.engine.config import SamplingConfig
from magicdec.kernels.transfer import to_device

#: Columns of the noise table: what each uniform number decides.
DRAFT, ACCEPT, NEXT = range(3)


def sibling(column: int, rank: int) -> int:
    """The column that decides DRAFT or ACCEPT for the rank-th of a node's children in a tree."""
    return column if rank == 0 else 1 + 2 * rank + column


def distribution(logits: Tensor, config: SamplingConfig) -> Tensor:
    """The probabilities a sampled token is drawn from: float32, shaped like logits [..., V].

    Temperature, then top-k, then top-p, then min-p; each works on what the one before left.
    Equal values at a cut-off are kept together, so that the result does not depend on their order.
    """
    logits = logits.float()
    logits = logits - logits.amax(dim=-1, keepdim=True)  # a small temperature must not overflow
    probs = torch.softmax(logits / config.temperature, dim=-1)
    if 0 < config.top_k < probs.shape[-1]:
        least = probs.topk(config.top_k, dim=-1).values[..., -1:]
        probs = _only(probs, probs >= least)
    if config.top_p < 1.0:
        ranked = probs.sort(dim=-1, descending=True).values
        before = ranked.cumsum(dim=-1) - ranked  # mass of the more probable tokens
        inside = before < config.top_p
        least = ranked.masked_fill(~inside, torch.inf).amin(dim=-1, keepdim=True)
        probs = _only(probs, probs >= least)
    if config.min_p > 0.0:
        probs = _only(probs, probs >= config.min_p * probs.amax(dim=-1, keepdim=True))
    return probs


def _only(probs: Tensor, keep: Tensor) -> Tensor:
    kept = probs * keep
    return kept / kept.sum(dim=-1, keepdim=True)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Inverse-CDF draw: weights [..., V] (need not sum to 1), uniform [...] in [0, 1) -> [...].

    In float64, so that even the rarest token of a large vocabulary keeps its chance.
    """
    cdf = weights.double().cumsum(dim=-1)
    total = cdf[..., -1]
    # Strictly below the total: rounding must not select a token past the last possible one.
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    found = torch.searchsorted(cdf, target[..., None], right=True)[..., 0]
    return found.clamp(max=weights.shape[-1] - 1)  # NaN is beyond all: a step refuses it later


class Noise:
    """Every uniform number a row may need, fixed by the row's seed and the output position.

    [slots, positions, 3], and two more columns for each further sibling of a tree. A row's draws
    therefore depend on nothing but its own seed and text: not on its batch mates, its slot or how
    often it was rejected. Using a position's numbers again after a rejection is sound: they only
    ever decided what that position emitted, and a discarded position emitted nothing.
    """

    def __init__(
        self, seed: int, slots: int, positions: int, device: torch.device, *, siblings: int = 1
    ) -> None:
        self._seed = seed
        columns = 1 + 2 * siblings
        self._table = torch.zeros(slots, positions, columns, dtype=torch.float64, device=device)

    def admit(self, slot: int, *stream: int) -> None:
        """New numbers for `slot`, fixed by the seed and `stream`: the row, and what is special."""
        rng = np.random.default_rng([self._seed, *stream])
        self._table[slot] = torch.from_numpy(rng.random(self._table.shape[1:]))

    def at(self, slots: Sequence[int], positions: Sequence[int], count: int) -> Tensor:
        """The numbers of `count` output positions from `positions` on: [n, count, columns]."""
        device = self._table.device
        index = to_device([slots, positions], device)
        return self._table[
            index[0, :, None], index[1, :, None] + torch.arange(count, device=device)
        ]
