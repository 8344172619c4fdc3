"""Fast kernels equal the readable reference on random shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.backends import backend_names, get_backend
from magicdec.kernels.linear import PackedLinear, PlainLinear, make_linear

CPU = torch.device("cpu")
CAPACITY = 48


@st.composite
def problems(draw):
    """(shape, query heads, KV heads, head dim): ragged, permuted, windowed or not."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    new = draw(st.integers(1, 9))
    rows = draw(st.permutations(range(5)).flatmap(lambda p: st.integers(1, 5).map(lambda n: p[:n])))
    lengths = [draw(st.integers(new, CAPACITY)) for _ in rows]
    window = draw(st.none() | st.integers(1, CAPACITY))
    shape = AttentionShape(tuple(rows), tuple(lengths), new, window)
    return shape, kv_heads * group, kv_heads, draw(st.sampled_from([8, 16, 64, 80]))


@pytest.mark.parametrize("name", [n for n in backend_names() if n != "reference"])
@given(problem=problems())
@settings(max_examples=150, deadline=None)
def test_backends_equal_the_reference(name, problem):
    shape, heads, kv_heads, dim = problem
    noise = torch.Generator().manual_seed(7)
    q = torch.randn(len(shape.rows), shape.new, heads, dim, generator=noise)
    caches = []
    for _ in range(2):
        cache = get_backend(name, CPU).allocate(
            1, 5, kv_heads, CAPACITY, dim, dtype=torch.float32, device=CPU
        )
        assert not cache.any()
        cache.copy_(torch.randn(cache.shape, generator=noise))
        caches.append(cache[0])
    got, want = (
        get_backend(n, CPU)
        .plan(shape, query_heads=heads, kv_heads=kv_heads, dtype=torch.float32, device=CPU)
        .attend(q, *caches)
        for n in (name, "reference")
    )
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_an_unknown_backend_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'flash9'.*auto, .*reference"):
        get_backend("flash9", CPU)


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("tokens", [1, 3, 8, 64, 500])
def test_packed_linear_equals_plain(tokens, bias):
    noise = torch.Generator().manual_seed(3)
    weight = torch.randn(130, 72, generator=noise)
    offset = torch.randn(130, generator=noise) if bias else None
    x = torch.randn(2, tokens, 72, generator=noise)
    packed = make_linear(weight.clone(), offset)
    assert isinstance(packed, PackedLinear)
    torch.testing.assert_close(packed(x), PlainLinear(weight, offset)(x), rtol=1e-4, atol=1e-4)
    assert packed.nbytes == weight.nbytes


def test_half_precision_is_not_packed():
    assert isinstance(make_linear(torch.zeros(8, 8, dtype=torch.bfloat16)), PlainLinear)
