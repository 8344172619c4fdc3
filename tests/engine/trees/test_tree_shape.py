"""Sequoia's search finds the best of all trees, and the cheapest for given costs."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.engine.config import DecodeConfig
from magicdec.engine.drafters.make import sequoia_shape
from magicdec.engine.errors import ConfigError
from magicdec.engine.trees.shape import ShapeSearch, TreeShape

rates = st.lists(st.floats(0.05, 0.95), min_size=1, max_size=4)


@functools.cache
def all_trees(nodes: int, depth: int) -> list[tuple]:
    """Every ordered tree with exactly `nodes` below the root, as nested tuples of children."""
    if nodes == 0:
        return [()]
    if depth == 0:
        return []
    return [
        (first, *rest)
        for size in range(nodes)
        for first in all_trees(size, depth - 1)
        for rest in all_trees(nodes - 1 - size, depth)
    ]


def expected(tree: tuple, chances: list[float]) -> float:
    """Accepted tokens below a node, by the definition."""
    total, left = 0.0, 1.0
    for child, rate in zip(tree, [*chances, *[0.0] * len(tree)], strict=False):
        total += left * rate * (1 + expected(child, chances))
        left *= 1 - rate
    return total


def nested(shape: TreeShape) -> tuple:
    def below(node: int) -> tuple:
        return tuple(below(i) for i, p in enumerate(shape.parents, 1) if p == node)

    return below(0)


@settings(max_examples=60, deadline=None)
@given(chances=rates, nodes=st.integers(1, 7), depth=st.integers(1, 4))
def test_no_tree_is_better(chances, nodes, depth):
    search = ShapeSearch(chances, nodes=nodes, depth=depth)
    best = max(
        expected(tree, chances) for size in range(nodes + 1) for tree in all_trees(size, depth)
    )
    assert search.tokens(nodes, depth) == pytest.approx(1 + best)
    shape = search.shape(nodes, depth)
    assert len(shape.parents) <= nodes and shape.height <= depth
    assert 1 + expected(nested(shape), chances) == pytest.approx(1 + best)


@settings(max_examples=40, deadline=None)
@given(
    chances=rates,
    draft=st.floats(0.0, 3.0),
    verify=st.lists(st.floats(0.01, 2.0), min_size=6, max_size=6),
)
def test_no_size_and_depth_are_cheaper(chances, draft, verify):
    costs = [sum(verify[: i + 1]) for i in range(6)]  # rising
    search = ShapeSearch(chances, nodes=5, depth=3)
    shape = search.cheapest(draft, costs)

    def price(tree: TreeShape) -> float:
        gain = 1 + expected(nested(tree), chances)
        return (tree.height * draft + costs[len(tree.parents)]) / gain

    others = [search.shape(n, d) for d in (1, 2, 3) for n in range(1, 6)]
    assert price(shape) <= min(map(price, others)) * (1 + 1e-9)


def test_a_sure_first_child_makes_a_chain_and_equal_costs_the_largest_tree():
    assert ShapeSearch((1.0, 0.5), nodes=9, depth=4).shape(9, 4).parents == (0, 1, 2, 3)
    search = ShapeSearch((0.5, 0.4, 0.3), nodes=6, depth=6)
    assert len(search.cheapest(0.0, [1.0] * 7).parents) == 6
    assert search.cheapest(100.0, [1.0] * 7).height == 1


def test_generations_say_what_each_draft_pass_is_fed_and_gives():
    first, second, third = TreeShape((0, 0, 0, 1, 1, 3, 4)).generations()
    assert (first.counts, first.parents, first.ranks, first.fed) == (
        (3,), (0, 0, 0), (0, 1, 2), (0, 2),
    )  # fmt: skip
    assert (second.counts, second.parents, second.ranks, second.fed) == (
        (2, 1), (0, 0, 1), (0, 1, 0), (0,),
    )  # fmt: skip
    assert (third.counts, third.fed) == ((1,), ())
    assert TreeShape((0, 0, 0, 1, 1, 3, 4)).drawn == (0, 1, 2, 2, 3, 4, 4, 4)


@pytest.mark.parametrize("parents", [(), (1,), (0, 3), (0, 0, 2, 1)])
def test_what_is_no_tree_is_refused(parents):
    with pytest.raises(ConfigError, match="names each node's parent"):
        TreeShape(parents)


@pytest.mark.parametrize(
    "setting,message",
    [
        (dict(tree="medusa"), "tree must be one of none, specexec, sequoia, got 'medusa'"),
        (dict(tree_nodes=0), "tree-nodes must be in 1..128, got 0"),
        (dict(tree_rates=(0.0, 0.5)), "the first of them above 0, got 0, 0.5"),
        (dict(tree_rates=(0.5, 1.5)), "shares in 0..1"),
        (dict(tree_rates=()), "got none"),
        (dict(tree="sequoia", draft="lookup"), "not by draft 'lookup'; give draft self"),
        (dict(tree="specexec", draft="some/model"), "not by draft 'some/model'"),
    ],
    ids=str,
)
def test_trees_that_cannot_be(setting, message):
    with pytest.raises(ConfigError, match=message):
        DecodeConfig(**setting)


def test_the_default_rates_make_a_tree_that_branches():
    shape = sequoia_shape(DecodeConfig(tree="sequoia", tree_nodes=16, gamma=4))
    assert shape.height == 4 and shape.width > 1 and len(shape.parents) == 16
