"""How wide SpecExec's draft passes are. Plain arithmetic, no torch: settings ask for it."""

from __future__ import annotations

import math


def beam(nodes: int, depth: int) -> tuple[int, int]:
    """(passes, nodes that each feeds after the first, which feeds the root) for a tree of `nodes`
    nodes, at most `depth` deep."""
    passes = min(depth, nodes)
    return passes, math.ceil(nodes / passes)


def fed(nodes: int, depth: int) -> int:
    """Nodes that all passes of a step feed, the root included; may be more than are kept."""
    passes, width = beam(nodes, depth)
    return 1 + (passes - 1) * width
