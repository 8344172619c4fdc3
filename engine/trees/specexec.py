"""SpecExec (arXiv 2406.02532): best-first trees, grown by the draft's own probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from magicdec.engine.accept.chain import Proposal
from magicdec.engine.accept.tree import TreeRule
from magicdec.engine.trees.beam import beam
from magicdec.engine.trees.grow import Grower, Growth
from magicdec.engine.trees.tree import Tree

#: A generation's worth besides its probability; parents thereby come before their children.
DECAY = math.log(0.95)


class SpecExec(Grower):
    """Keeps the `nodes` likeliest of what the draft finds in `height` passes.

    A pass feeds the likeliest nodes of the newest generation, `nodes` / `height` of them: the
    children of an unlikely node are unlikely to be kept, and a pass costs by its width.
    """

    def __init__(self, nodes: int, height: int) -> None:
        self.nodes = nodes
        self.height, self.beam = beam(nodes, height)

    def begin(self, pending: Tensor, rule: TreeRule) -> Growth:
        return _Growth(self, pending, rule)


class _Growth(Growth):
    def __init__(self, grower: SpecExec, pending: Tensor, rule: TreeRule) -> None:
        super().__init__(pending, rule)
        self._nodes, self._beam = grower.nodes, grower.beam
        # The nodes fed last: their number among all that were found, and their log-probability.
        self._at = torch.zeros_like(pending)
        self._worth = torch.zeros_like(pending, dtype=torch.float32)
        self._found = 0
        self._tokens: list[Tensor] = []  # of each generation, [n, F · K]
        self._parents: list[Tensor] = []
        self._worths: list[Tensor] = []

    def expand(self, logits: Tensor) -> None:
        best = self._rule.log_probs(logits).topk(min(self._nodes, logits.shape[2]), dim=2)
        worth = self._worth[..., None] + best.values + DECAY  # [n, F, K]
        worth = worth.masked_fill((self._limits <= self._depth)[:, None, None], -torch.inf)
        siblings = worth.shape[2]
        tokens, worth = best.indices.flatten(1), worth.flatten(1)
        self._tokens.append(tokens)
        self._parents.append(self._at.repeat_interleave(siblings, dim=1))
        self._worths.append(worth)
        fed = worth.topk(min(self._beam, worth.shape[1]), dim=1)
        self._at, self._worth = self._found + 1 + fed.indices, fed.values
        self._found += worth.shape[1]
        self._feed(tokens.gather(1, fed.indices), fed.indices // siblings)

    def proposal(self) -> Proposal:
        tokens, parents, worths = (
            torch.cat(parts, dim=1) for parts in (self._tokens, self._parents, self._worths)
        )
        # Stable, so that parents come first even among what does not count.
        ranked = worths.sort(dim=1, descending=True, stable=True)
        kept = ranked.indices[:, : self._nodes]
        new = torch.arange(1, kept.shape[1] + 1, device=kept.device).expand(kept.shape)
        renamed = torch.zeros_like(worths[:, :1], dtype=torch.int64).repeat(1, self._found + 1)
        renamed.scatter_(1, kept + 1, new)
        tree = Tree(
            parents=renamed.gather(1, parents.gather(1, kept)),
            valid=ranked.values[:, : self._nodes] > -torch.inf,
            height=self._depth,
            width=self._nodes,
        )
        return Proposal(tokens.gather(1, kept), tree=tree)
