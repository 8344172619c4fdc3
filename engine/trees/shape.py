"""The shape of a tree, and Sequoia's search for the best one (arXiv 2402.12374, section 4.1).

Plain data, no torch: shapes are chosen before a model is opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from magicdec.engine.errors import require

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Generation:
    """What one draft pass adds: children of the nodes it was fed, parent by parent."""

    counts: tuple[int, ...]  # children of each node that was fed
    parents: tuple[int, ...]  # of each child: which of the nodes that were fed
    ranks: tuple[int, ...]  # of each child: its place among its siblings
    fed: tuple[int, ...]  # the children that have children: the next pass is fed these


@dataclass(frozen=True)
class TreeShape:
    """parents: of every node but the root, generation by generation; 0 is the root, i the i-th.

    Siblings stand in the order in which they are tried. Raises ConfigError for what is no tree.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        fits = all(0 <= parent <= node for node, parent in enumerate(self.parents))
        require(
            bool(self.parents) and fits and list(self.parents) == sorted(self.parents),
            f"a tree's shape names each node's parent, generation by generation, such as "
            f"(0, 0, 1, 1, 2), got {self.parents}",
        )

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Of every node, the root included."""
        found = [0]
        for parent in self.parents:
            found.append(found[parent] + 1)
        return tuple(found)

    @property
    def height(self) -> int:
        return self.depths[-1]

    @property
    def width(self) -> int:
        """The most children that a node has."""
        return max(map(self.parents.count, set(self.parents)))

    @cached_property
    def drawn(self) -> tuple[int, ...]:
        """Of every node: how many nodes with children come before it."""
        inner = set(self.parents)
        return tuple(sum(i < node for i in inner) for node in range(len(self.parents) + 1))

    def generations(self) -> list[Generation]:
        """The draft passes that make the tree."""
        inner, made = set(self.parents), []
        fed = [0]
        for depth in range(1, self.height + 1):
            born = [node for node, d in enumerate(self.depths) if d == depth]
            parents = [self.parents[node - 1] for node in born]
            made.append(
                Generation(
                    counts=tuple(parents.count(node) for node in fed),
                    parents=tuple(fed.index(parent) for parent in parents),
                    ranks=tuple(parents[:i].count(p) for i, p in enumerate(parents)),
                    fed=tuple(i for i, node in enumerate(born) if node in inner),
                )
            )
            fed = [node for node in born if node in inner]
        return made


class ShapeSearch:
    """The best trees for given chances of siblings.

    rates: p[k], how often the k-th sibling is accepted when those before it were not.
    """

    def __init__(self, rates: Sequence[float], *, nodes: int, depth: int) -> None:
        rates_left = np.cumprod([1.0, *(1 - rate for rate in rates)])
        self._chances = [rate * left for rate, left in zip(rates, rates_left, strict=False)]
        #: [l][m]: most accepted tokens expected below a node, in l generations of m nodes.
        self.gains = [np.zeros(nodes + 1)]
        for _ in range(depth):
            self.gains.append(self._siblings(self.gains[-1])[0])

    def tokens(self, nodes: int, depth: int) -> float:
        """Expected tokens of a step, Ω: the accepted ones and the target's own."""
        return 1 + float(self.gains[depth][nodes])

    def shape(self, nodes: int, depth: int) -> TreeShape:
        """The tree that gives `tokens`; nodes that would gain nothing are left out."""
        parents: list[int] = []
        waiting = deque([(0, nodes, depth)])  # a node, nodes to place below it, generations left
        while waiting:
            parent, below, left = waiting.popleft()
            for size in self._split(below, left):
                parents.append(parent)
                waiting.append((len(parents), size - 1, left - 1))
        return TreeShape(tuple(parents))

    def cheapest(self, draft: float, verify: Sequence[float]) -> TreeShape:
        """The shape with the least time per token.

        draft: seconds of a draft pass, T_D; verify: [m], of a pass that judges m nodes, T_V.
        """
        options = [
            ((depth * draft + verify[size]) / self.tokens(size, depth), size, depth)
            for depth in range(1, len(self.gains))
            for size in range(depth, len(self.gains[0]))
        ]
        _, size, depth = min(options)
        return self.shape(size, depth)

    def _siblings(self, below: Floats) -> list[Floats]:
        """[k][m]: the best that the k-th and later siblings make of m nodes. below: their gains."""
        tables = [np.zeros(len(below))]
        for chance in reversed(self._chances):
            later, best = tables[0], np.zeros(len(below))
            for m in range(1, len(below)):
                # The sibling and what is below it take 1 to m of the nodes.
                best[m] = np.max(chance * (1 + below[:m]) + later[m - 1 :: -1])
            tables.insert(0, best)
        return tables

    def _split(self, nodes: int, depth: int) -> list[int]:
        """How many nodes each child of the best tree takes, itself included."""
        if depth == 0:
            return []
        below, sizes = self.gains[depth - 1], []
        tables = self._siblings(below)
        for chance, later in zip(self._chances, tables[1:], strict=True):
            if nodes == 0 or chance <= 0:
                break
            options = chance * (1 + below[:nodes]) + later[nodes - 1 :: -1]
            # Of equal ones the smallest: no node without a gain.
            sizes.append(1 + int(np.argmax(options)))
            nodes -= sizes[-1]
        return sizes
