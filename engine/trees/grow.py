"""Trees while they are drafted: pass by pass, the newest nodes that are worth it are fed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from magicdec.engine.accept.chain import Proposal
from magicdec.engine.accept.tree import TreeRule
from magicdec.engine.trees.tree import Nodes, deepen


class Growth(ABC):
    """One step's trees of all its rows.

    A pass feeds `fed` [n, F], nodes of one depth; those fed before are in the draft's cache, in
    the order in which they were fed.
    """

    def __init__(self, pending: Tensor, rule: TreeRule) -> None:
        self.fed, self._rule, self._depth = pending, rule, 0
        self._limits = rule.limits(pending.device)  # [n]
        n = pending.shape[0]
        self._seen = torch.ones(n, 1, 1, dtype=torch.bool, device=pending.device)

    def nodes(self) -> Nodes:
        depths = torch.full_like(self.fed, self._depth)
        return Nodes(depths, self._seen, self._depth)

    @abstractmethod
    def expand(self, logits: Tensor) -> None:
        """Gives children to the nodes that were fed, by their logits [n, F, V], and chooses those
        that are fed next."""

    @abstractmethod
    def proposal(self) -> Proposal:
        """All trees, once enough generations are there."""

    def _feed(self, tokens: Tensor, parents: Tensor) -> None:
        """The next pass: tokens [n, F] and which of the nodes fed last they follow [n, F]."""
        self.fed, self._depth = tokens, self._depth + 1
        self._seen = deepen(self._seen, parents)


class Grower(ABC):
    """A way to grow trees; what it needs is known before the run."""

    height: int  # draft passes of a step, at most

    @abstractmethod
    def begin(self, pending: Tensor, rule: TreeRule) -> Growth: ...
