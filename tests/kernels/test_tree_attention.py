"""Every backend shows a node of a tree its ancestors and itself, as the reference does."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.backends import get_backend
from magicdec.kernels.native_attention import BLOCK_QUERIES
from magicdec.kernels.reference import ReferenceAttention

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def ancestry(parents: list[int]) -> torch.Tensor:
    """parents of the nodes after the root -> which node sees which: bool [W, W]."""
    seen = torch.eye(len(parents) + 1, dtype=torch.bool)
    for node, parent in enumerate(parents, start=1):
        seen[node] |= seen[parent]
    return seen


@st.composite
def trees(draw, size: int):
    parents = [draw(st.integers(0, node - 1)) for node in range(1, size)]
    return ancestry(parents)


@st.composite
def problems(draw):
    tail = draw(st.integers(1, 2 * BLOCK_QUERIES + 5))
    new = draw(st.integers(1, tail))
    lengths = st.sampled_from([tail, tail + 1, tail + 255]) | st.integers(tail, 600)
    lengths = draw(st.lists(lengths, min_size=1, max_size=3))
    rows = draw(st.permutations(range(4)))[: len(lengths)]
    window = draw(st.none() | st.integers(1, 40) | st.sampled_from([256, 300]))
    tree = torch.stack([draw(trees(tail))[tail - new :] for _ in lengths])
    shape = AttentionShape(tuple(rows), tuple(lengths), new, window, tree)
    return shape, draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.sampled_from([8, 64]))


def attend(backend, shape, q, k, v):
    plan = backend.plan(
        shape, query_heads=q.shape[2], kv_heads=k.shape[1], dtype=q.dtype, device=CPU
    )
    return plan.attend(q, k, v)


def tensors(shape, group=2, kv_heads=2, dim=16, stored=torch.float32):
    made = torch.Generator().manual_seed(1)
    q = 2 * torch.randn(len(shape.rows), shape.new, group * kv_heads, dim, generator=made)
    size = (2, max(shape.rows) + 1, kv_heads, max(shape.lengths) + 9, dim)
    k, v = torch.randn(size, generator=made).to(stored)
    return q, k, v


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", ["native", "sdpa"])
@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_backends_equal_the_reference_on_trees(name, stored, problem):
    shape, group, kv_heads, dim = problem
    case = (shape, *tensors(shape, group, kv_heads, dim, stored))
    got = attend(get_backend(name, CPU), *case)
    torch.testing.assert_close(got, attend(ReferenceAttention(), *case), **CLOSE)


@pytest.mark.parametrize("window", [None, 3, 9])
@pytest.mark.parametrize("name", ["native", "sdpa", "reference"])
@settings(max_examples=25, deadline=None)
@given(parents=st.lists(st.integers(0, 30), min_size=1, max_size=8), before=st.integers(0, 300))
def test_a_node_sees_what_it_would_see_as_the_end_of_a_text(name, window, parents, before):
    """Each branch alone, in consecutive entries, by plain causal attention."""
    tree = ancestry([parent % (node + 1) for node, parent in enumerate(parents)])
    tail = len(tree)
    shape = AttentionShape((0,), (before + tail,), tail, window, tree[None])
    q, k, v = tensors(shape)
    got = attend(get_backend(name, CPU), shape, q, k, v)
    for node in range(tail):
        entries = [*range(before), *(before + tree[node].nonzero()[:, 0])]
        alone = AttentionShape((0,), (len(entries),), 1, window)
        branch = (q[:, node : node + 1], k[:, :, entries], v[:, :, entries])
        want = attend(ReferenceAttention(), alone, *branch)
        torch.testing.assert_close(got[:, node : node + 1], want, **CLOSE)


@pytest.mark.parametrize("window", [None, 20, 300])
@pytest.mark.parametrize("name", ["native", "sdpa", "reference"])
def test_a_tree_without_branches_is_a_chain(name, window):
    tree = torch.ones(6, 6, dtype=torch.bool).tril()
    chain = AttentionShape((1, 0), (517, 259), 6, window)
    q, k, v = tensors(chain)
    shape = AttentionShape((1, 0), (517, 259), 6, window, tree.expand(2, 6, 6))
    backend = get_backend(name, CPU)
    got, want = attend(backend, shape, q, k, v), attend(backend, chain, q, k, v)
    assert torch.equal(got, want)
