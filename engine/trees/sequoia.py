"""Sequoia (arXiv 2402.12374): trees of one shape, children drawn without replacement."""

from __future__ import annotations

import torch
from torch import Tensor

from magicdec.engine.accept.chain import Proposal
from magicdec.engine.accept.tree import TreeRule
from magicdec.engine.trees.grow import Grower, Growth
from magicdec.engine.trees.shape import TreeShape
from magicdec.engine.trees.tree import Tree
from magicdec.kernels.transfer import to_device


class Sequoia(Grower):
    def __init__(self, shape: TreeShape) -> None:
        self.shape, self.height = shape, shape.height
        self.generations = shape.generations()

    def begin(self, pending: Tensor, rule: TreeRule) -> Growth:
        return _Growth(self, pending, rule)


class _Growth(Growth):
    def __init__(self, grower: Sequoia, pending: Tensor, rule: TreeRule) -> None:
        super().__init__(pending, rule)
        self._shape, self._generations = grower.shape, grower.generations
        self._tokens: list[Tensor] = []  # of each generation
        self._probs: list[Tensor] = []  # of the nodes that were fed

    def expand(self, logits: Tensor) -> None:
        made = self._generations[self._depth]
        children, q = self._rule.children(logits, self._depth, max(made.counts))  # [n, F, B]
        if q is not None:
            self._probs.append(q)
        index = to_device([made.parents, made.ranks], logits.device)
        tokens = children[:, index[0], index[1]]
        self._tokens.append(tokens)
        fed = to_device(made.fed, logits.device).long()
        self._feed(tokens[:, fed], index[0][fed].expand(len(tokens), -1))

    def proposal(self) -> Proposal:
        tokens, shape = torch.cat(self._tokens, dim=1), self._shape
        n, size = tokens.shape
        device = tokens.device
        depths = to_device(shape.depths[1 : size + 1], device)
        tree = Tree(
            parents=to_device(shape.parents[:size], device).expand(n, -1),
            valid=depths <= self._limits[:, None],
            height=self._depth,
            width=shape.width,
            draws=to_device(shape.drawn[: size + 1], device).expand(n, -1),
        )
        return Proposal(tokens, torch.cat(self._probs, dim=1) if self._probs else None, tree=tree)
