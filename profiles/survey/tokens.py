"""What logits say of tokens that are known."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from magicdec.engine.config import SamplingConfig
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.penalties import make_penalties
from magicdec.engine.row import Said
from magicdec.engine.sampling import distribution
from magicdec.profiles.survey.trace import TracedRow


def span(tokens: Sequence[int], start: int, width: int) -> list[int]:
    """`width` tokens from `start` on; where they end, the last one again."""
    part = list(tokens[start : start + width])
    return part + part[-1:] * (width - len(part))


class Chances:
    """What tokens are drawn from, in one reading of the rows' texts. target: with the vocabulary of
    the logits."""

    def __init__(
        self, sampling: SamplingConfig, rows: Sequence[TracedRow], target: Decoder
    ) -> None:
        self._sampling = sampling
        self._penalties = make_penalties(
            sampling, slots=1 + max(row.slot for row in rows), device=target.device,
            vocabulary=target.spec.vocab_size,
        )  # fmt: skip

    def of(self, rows: Sequence[TracedRow], start: int, logits: Tensor, tokens: Tensor) -> Tensor:
        """Of the texts' tokens [n, T + 1] from `start` on all but the first, by the logits
        [n, T, V] before each: float64 [n, T]; greedily 1 for the likeliest, else 0."""
        if self._penalties is not None:
            said = [Said(row.request, row.slot, list(row.tokens[: start + 1])) for row in rows]
            logits = self._penalties.apply(said, logits, [tokens[:, 1:-1]])
        following = tokens[:, 1:]
        if self._sampling.greedy:
            return (logits.argmax(dim=-1) == following).double()
        probs = distribution(logits, self._sampling)
        return probs.gather(2, following[..., None])[..., 0].double()
