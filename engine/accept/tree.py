"""The accept rule for trees: which branch the target takes, and what it says where it leaves.

SpecExec's rule: the target says a token at every node it comes to, and goes on where a child is
that token. Nothing is compared with the draft, so the text is plain decoding's own, sampled or
not. Sequoia's: a node's children were drawn from q without replacement, and are tried in order by
rejection sampling, each against what the ones before it left of p and q (arXiv 2402.12374,
algorithm 2). Both give exactly the target's distribution; greedy decoding is the limit of both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from magicdec.engine.accept.chain import Greedy, Proposal, Rejection, Rule, Verdict
from magicdec.engine.accept.sampling import ACCEPT, DRAFT, NEXT, distribution, draw, sibling
from magicdec.engine.trees.tree import Tree


class TreeRule(Rule):
    """Walks down a tree; what is drafted for it, and how its nodes are judged, differs."""

    def log_probs(self, logits: Tensor) -> Tensor:
        """The draft's log-probabilities, shaped like its logits [..., V]."""
        return logits.float().log_softmax(dim=-1)

    def children(self, logits: Tensor, depth: int, count: int) -> tuple[Tensor, Tensor | None]:
        """`count` different tokens after each node of a depth, by the draft's logits [n, F, V]:
        [n, F, count], and the q [n, F, V] that they were drawn from (None when they were not)."""
        return logits.topk(count, dim=2).indices, None

    def accept(self, proposal: Proposal, logits: Tensor) -> Verdict:
        tree = proposal.tree
        if tree is None:  # nothing was drafted
            return super().accept(proposal, logits)  # type: ignore[safe-super]
        rows = torch.arange(len(logits), device=logits.device)
        at = torch.zeros_like(rows)
        accepted, said, path = at, at, []
        going = torch.ones_like(rows, dtype=torch.bool)
        for depth in range(tree.height + 1):
            child, token = self._judge(proposal, tree, logits[rows, at], at, depth)
            said = torch.where(going, token, said)
            going = going & (child > 0)
            at = torch.where(going, child, at)
            accepted = accepted + going
            path.append(at)
        return Verdict(accepted, said, torch.stack(path[: tree.height], dim=1))

    def _judge(
        self, proposal: Proposal, tree: Tree, logits: Tensor, at: Tensor, depth: int
    ) -> tuple[Tensor, Tensor]:
        """At nodes `at` [n] of a depth, with the target's logits [n, V]: the accepted child or 0,
        and what the target says if there is none."""
        token = self._say(logits, depth)
        return tree.child(at, proposal.tokens == token[:, None]), token

    def _say(self, logits: Tensor, depth: int) -> Tensor:
        return logits.argmax(dim=-1)


class GreedyWalk(TreeRule, Greedy):
    """Of SpecExec and Sequoia alike."""


class SampledWalk(TreeRule, Rejection):
    """SpecExec's: uses the numbers that plain decoding would, so that a seed's text is the same."""

    def log_probs(self, logits: Tensor) -> Tensor:
        return distribution(logits, self._config).log()

    def _say(self, logits: Tensor, depth: int) -> Tensor:
        return draw(distribution(logits, self._config), self._u[:, depth, NEXT])


class ResidualWalk(TreeRule, Rejection):
    """Sequoia's."""

    def children(self, logits: Tensor, depth: int, count: int) -> tuple[Tensor, Tensor]:
        q = distribution(logits, self._config)
        left, drawn = q.clone(), []
        for rank in range(count):
            # Nodes of a depth share a number: only one of them is ever come to.
            u = self._u[:, depth, sibling(DRAFT, rank), None].expand(q.shape[:2])
            token = draw(left, u).clamp(max=q.shape[2] - 1)  # nothing left: `_judge` sees that
            left.scatter_(2, token[..., None], 0)
            drawn.append(token)
        return torch.stack(drawn, dim=2), q

    def _judge(
        self, proposal: Proposal, tree: Tree, logits: Tensor, at: Tensor, depth: int
    ) -> tuple[Tensor, Tensor]:
        p = distribution(logits, self._config)  # [n, V]
        child = torch.zeros_like(at)
        if depth < tree.height:
            assert proposal.probs is not None and tree.draws is not None
            rows, ranks = torch.arange(len(at), device=at.device), tree.ranks()
            drawn = tree.draws[rows, at].clamp(max=proposal.probs.shape[1] - 1)  # a leaf has none
            q = proposal.probs[rows, drawn]
            for rank in range(tree.width):
                node = tree.child(at, ranks == rank)
                total = q.sum(dim=1, keepdim=True)
                tried = (node > 0) & (child == 0) & (total[:, 0] > 0)
                q = q / total.clamp(min=torch.finfo(q.dtype).tiny)
                token = proposal.tokens.gather(1, (node - 1).clamp(min=0)[:, None])  # [n, 1]
                u = self._u[:, depth, sibling(ACCEPT, rank)]
                hit = tried & (u * q.gather(1, token)[:, 0] < p.gather(1, token)[:, 0])
                child = torch.where(hit, node, child)
                p = torch.where((tried & ~hit)[:, None], _residual(p, q), p)
                q = q.scatter(1, token, 0)
        return child, draw(p, self._u[:, depth, NEXT])


def _residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(p - q, 0)); p itself where nothing is left, which is p = q up to rounding."""
    left = (p - q).clamp(min=0)
    total = left.sum(dim=1, keepdim=True)
    return torch.where(total > 0, left / total, p)
