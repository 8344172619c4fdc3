"""When a draft has become unlikely to count; see `gamma.policy.Adaptive`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class Confidence:
    """Follows one draft of n rows. `lengths` [n]: how much of it counts, by row."""

    def __init__(self, stop: float | None, most: Sequence[int]) -> None:
        self._stop, self._most = stop, most
        self._chance: Tensor | None = None  # [n]: that all tokens so far are accepted
        self._drafted = 0
        self._ended: dict[int, int] = {}  # row -> its length

    @property
    def lengths(self) -> list[int]:
        return [self._ended.get(row, most) for row, most in enumerate(self._most)]

    def ends(self, logits: Tensor, token: Tensor, q: Tensor | None) -> bool:
        """Whether no row wants another token after this one, token [n], drawn from q [n, V].

        Waits for the device, once for each draft step, when there is anything to decide.
        """
        self._drafted += 1
        if self._stop is None:
            return False
        sure = chance(logits, token, q)
        self._chance = sure if self._chance is None else self._chance * sure
        for row, unlikely in enumerate((self._chance < self._stop).tolist()):
            if unlikely or self._drafted >= self._most[row]:
                self._ended.setdefault(row, min(self._drafted, self._most[row]))
        return len(self._ended) == len(self._most)


def chance(logits: Tensor, tokens: Tensor, q: Tensor | None) -> Tensor:
    """The draft's probability of its tokens [...]: of logits [..., V] when greedy, q is None."""
    probs = logits.float().softmax(dim=-1) if q is None else q
    return probs.gather(-1, tokens[..., None])[..., 0]
