"""The accept rule for chains: which drafted tokens the target keeps, and what it says next.

Speculative sampling (Leviathan et al., arXiv 2211.17192, algorithm 1; Chen et al., arXiv
2302.01318): accept draft token x with probability min(1, p(x)/q(x)); after the first rejection
draw from norm(max(p - q, 0)), after none from p. What comes out is distributed exactly as p.
Greedy decoding is the limit: accept while the target's argmax equals the draft.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from magicdec.engine.accept.penalties import Penalties
from magicdec.engine.accept.sampling import ACCEPT, DRAFT, NEXT, Noise, distribution, draw
from magicdec.engine.config import SamplingConfig
from magicdec.engine.events import TreeShare
from magicdec.engine.rows import Text
from magicdec.engine.trees.tree import Nodes, Tree
from magicdec.kernels.transfer import to_device


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter proposes: tokens [n, G] and, when sampling, what each was drawn from.

    A drafter that finds less for a row says how much in `lengths`; what is beyond does not count.
    """

    tokens: Tensor
    probs: Tensor | None = None  # q, [n, G, V]
    lengths: Sequence[int] | None = None  # per row; None: all that the row may draft
    tree: Tree | None = None  # how the tokens hang together; None: each row's are a chain

    def drafted(self, most: Sequence[int]) -> list[int]:
        """How many tokens are proposed to each row, that may draft `most`."""
        return [min(pair) for pair in zip(most, self.lengths or most, strict=True)]

    def shares(
        self, most: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> list[tuple[int, TreeShare | None]]:
        """How many tokens are proposed to each row, that may draft `most` one after the other, and
        what its tree came to, if it is one. paths: where each row's accepted tokens stand."""
        if self.tree is not None:
            return list(self.tree.shares(paths))
        return [(own, None) for own in self.drafted(most)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """accepted [n]: draft tokens kept; next [n]: the recovered or bonus token after them.

    path [n, G]: where they stand in the pass that judged them, the pending token being its 0th.
    """

    accepted: Tensor
    next: Tensor
    path: Tensor


class Rule(ABC):
    """Draws tokens and decides acceptance, for draft and target alike."""

    penalties: Penalties | None = None

    def admit(self, slot: int, *stream: int) -> None:  # noqa: B027  (greedy has nothing to prepare)
        """A new row moves into `slot`. stream: what its random numbers are fixed by."""

    def begin(self, slots: Sequence[int], emitted: Sequence[int], drafted: Sequence[int]) -> None:
        """A step begins. The rows have emitted so many tokens; `drafted` is each row's own γ."""
        self._drafted = drafted

    def limits(self, device: torch.device) -> Tensor:
        """The most tokens that each row may draft one after the other, [n]."""
        return to_device(self._drafted, device)

    def penalised(
        self, rows: Sequence[Text], logits: Tensor, drafted: Sequence[Tensor],
        nodes: Nodes | None = None,
    ) -> Tensor:  # fmt: skip
        """What of logits [n, T, V], draft's or target's, everything is decided from: see
        `Penalties.apply`."""
        if self.penalties is None:
            return logits
        return self.penalties.apply(rows, logits, drafted, nodes)

    @abstractmethod
    def draft(self, logits: Tensor, ahead: int) -> tuple[Tensor, Tensor | None]:
        """logits [n, V] of the draft -> tokens [n] and their q [n, V] (None when greedy)."""

    def certain(self, tokens: Tensor, vocabulary: int) -> Tensor | None:
        """q of tokens [n, G] that nothing was drawn for: one-hot [n, G, V], None when greedy."""
        return None

    def probabilities(self, logits: Tensor) -> Tensor | None:
        """What tokens are drawn from, [..., V]; None when greedy."""
        return None

    @abstractmethod
    def accept(self, proposal: Proposal, logits: Tensor) -> Verdict:
        """logits [n, G + 1, V] of the target, one more than there are proposals."""

    def _within(self, proposal: Proposal) -> Tensor:
        """Which draft positions count for each row: bool [n, G]."""
        tokens = proposal.tokens
        own = to_device(proposal.drafted(self._drafted), tokens.device)[:, None]
        return torch.arange(tokens.shape[1], device=tokens.device) < own


class Greedy(Rule):
    def draft(self, logits: Tensor, ahead: int) -> tuple[Tensor, None]:
        return logits.argmax(dim=-1), None

    def accept(self, proposal: Proposal, logits: Tensor) -> Verdict:
        target = logits.argmax(dim=-1)  # [n, G + 1]
        hits = proposal.tokens == target[:, :-1]
        accepted = leading(hits & self._within(proposal))
        return Verdict(accepted, target.gather(1, accepted[:, None])[:, 0], chain(proposal.tokens))


class Rejection(Rule):
    """Exact sampling."""

    def __init__(self, config: SamplingConfig, noise: Noise) -> None:
        self._config, self._noise = config, noise

    def admit(self, slot: int, *stream: int) -> None:
        self._noise.admit(slot, *stream)

    def begin(self, slots: Sequence[int], emitted: Sequence[int], drafted: Sequence[int]) -> None:
        super().begin(slots, emitted, drafted)
        self._u = self._noise.at(slots, emitted, max(drafted) + 1)  # [n, G + 1, 3]

    def draft(self, logits: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
        probs = self.probabilities(logits)
        return draw(probs, self._u[:, ahead, DRAFT]), probs

    def probabilities(self, logits: Tensor) -> Tensor:
        return distribution(logits, self._config)

    def certain(self, tokens: Tensor, vocabulary: int) -> Tensor:
        return one_hot(tokens, vocabulary).float()

    def accept(self, proposal: Proposal, logits: Tensor) -> Verdict:
        tokens, q = proposal.tokens, proposal.probs
        gamma = tokens.shape[1]
        p = self.probabilities(logits)  # [n, G + 1, V]
        if q is None:
            q = p.new_zeros(p[:, :0].shape)
        chosen = tokens[..., None]
        p_chosen, q_chosen = p[:, :gamma].gather(2, chosen), q.gather(2, chosen)
        within = self._within(proposal)
        hits = (self._u[:, :gamma, ACCEPT, None] * q_chosen < p_chosen)[..., 0]
        accepted = leading(hits & within)
        # After a row's last draft token q is zero, so the residual is p: the bonus token.
        q = torch.cat((q * within[..., None], torch.zeros_like(p[:, :1])), dim=1)
        at = accepted[:, None, None].expand(-1, 1, p.shape[2])
        p_at, q_at = p.gather(1, at)[:, 0], q.gather(1, at)[:, 0]  # [n, V]
        residual = (p_at - q_at).clamp(min=0)
        # p = q up to rounding: nothing is left to recover, and p itself is right.
        empty = residual.sum(dim=-1, keepdim=True) == 0
        residual = torch.where(empty, p_at, residual)
        u = self._u[:, :, NEXT].gather(1, accepted[:, None])[:, 0]
        return Verdict(accepted, draw(residual, u), chain(tokens))


def chain(tokens: Tensor) -> Tensor:
    """The path of tokens [n, G] that follow one another."""
    return torch.arange(1, tokens.shape[1] + 1, device=tokens.device).expand(tokens.shape)


def leading(hits: Tensor) -> Tensor:
    """How many hits come before the first miss: bool [n, G] -> int64 [n]."""
    return hits.long().cumprod(dim=1).sum(dim=1)


def make_rule(config: SamplingConfig, *, slots: int, positions: int, device: torch.device) -> Rule:
    """The rule for `config`. positions: the most tokens a row may emit, drafts included."""
    if config.greedy:
        return Greedy()
    return Rejection(config, Noise(config.seed or 0, slots, positions, device))
