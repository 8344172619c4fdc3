"""Drafted tokens that branch, as tensors: who follows whom, and what attention must know of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from magicdec.engine.events import TreeShare


@dataclass(frozen=True, slots=True)
class Nodes:
    """The new tokens of one forward, as nodes of one tree per row.

    A row's root is its last known token, the first that no cache holds yet.
    """

    depths: Tensor  # [n, T], tokens after the root; its own depth is 0
    seen: Tensor  # bool [n, T, W], see `AttentionShape.tree`
    deepest: int


@dataclass(frozen=True)
class Tree:
    """How M drafted tokens per row hang together. The root is 0, the m-th drafted token is m + 1.

    Parents come before their children, and of siblings the one to be tried first.
    """

    parents: Tensor  # [n, M]
    valid: Tensor  # bool [n, M]: nodes that count; where one does not, nor does what follows it
    height: int  # an upper bound of the depths
    width: int  # an upper bound of the number of siblings
    #: [n, M + 1]: which of a proposal's `probs` a node's children were drawn from.
    draws: Tensor | None = None

    @cached_property
    def nodes(self) -> Nodes:
        """Root and drafted tokens, as they are fed to the pass that judges them."""
        n, size = self.parents.shape
        above = torch.cat((self.parents.new_zeros(n, 1), self.parents), dim=1)  # the root's: itself
        at = torch.arange(size + 1, device=above.device).expand(n, -1)
        seen = torch.zeros(n, size + 1, size + 1, dtype=torch.bool, device=above.device)
        for _ in range(self.height + 1):
            seen.scatter_(2, at[..., None], True)
            at = above.gather(1, at)
        return Nodes(seen.sum(dim=2) - 1, seen, self.height)

    def shares(self, paths: Sequence[Sequence[int]]) -> Iterator[tuple[int, TreeShare]]:
        """Of each row, how many nodes count, and what they came to; paths: the accepted ones."""
        depths = (self.nodes.depths[:, 1:] * self.valid).tolist()
        for path, own, parents in zip(paths, depths, self.parents.tolist(), strict=True):
            tried = []
            for node, child in zip((0, *path), (*path, None), strict=True):
                children = [i for i, p in enumerate(parents, 1) if p == node and own[i - 1]]
                if children:
                    tried.append((children.index(child) + 1 if child else 0, len(children)))
            yield sum(depth > 0 for depth in own), TreeShare(max(own), tuple(tried))

    def ranks(self) -> Tensor:
        """[n, M]: how many siblings are tried before a node."""
        siblings = self.parents[:, :, None] == self.parents[:, None, :]
        return siblings.tril(-1).sum(dim=2)

    def child(self, at: Tensor, which: Tensor) -> Tensor:
        """The child of node `at` [n] among `which`, bool [n, M]: its number, or 0 for none."""
        found = (self.parents == at[:, None]) & self.valid & which
        return torch.where(found.any(dim=1), found.long().argmax(dim=1) + 1, 0)


def deepen(seen: Tensor, parents: Tensor) -> Tensor:
    """What children see, [n, F, W + F], written behind the W entries of which their parents'
    generation sees `seen` [n, P, W]. parents [n, F]: which of the P."""
    (n, count), width = parents.shape, seen.shape[2]
    above = seen.gather(1, parents[..., None].expand(-1, -1, width))
    own = torch.eye(count, dtype=torch.bool, device=seen.device).expand(n, -1, -1)
    return torch.cat((above, own), dim=2)
