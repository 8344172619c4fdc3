"""The small operations in C++ equal torch's."""

from __future__ import annotations

import pytest
import torch

from magicdec.kernels import native_build
from magicdec.kernels.native_build import BuildError
from magicdec.kernels.native_pointwise import NativePointwise
from magicdec.kernels.pointwise import Entries, Pointwise

TORCH = Pointwise()
NOT_NUMBERS = torch.tensor([torch.inf, -torch.inf, torch.nan])
SHAPES = [(1, 1), (3, 2), (1, 512)]  # rows, tokens; the last is shared among threads


@pytest.fixture(scope="module")
def cpp() -> NativePointwise:
    try:
        native_build.find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    return NativePointwise(native_build.load(lambda _what: None))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [64, 576, 20, 3])
def test_norm(cpp, shape, width):
    x, weight = 3 * torch.randn(*shape, width), torch.randn(width)
    torch.testing.assert_close(cpp.norm(x, weight, 1e-5), TORCH.norm(x, weight, 1e-5))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [256, 12])
def test_gate(cpp, shape, width):
    x = 20 * torch.randn(*shape, 2 * width)
    torch.testing.assert_close(cpp.gate(x), TORCH.gate(x))


@pytest.mark.parametrize("width", [8, 4])
def test_gate_of_extremes(cpp, width):
    x = torch.zeros(1, 1, 2 * width)
    x[..., :4] = torch.tensor([1e4, -1e4, torch.nan, 0.0])
    x[..., width:] = 2.0
    torch.testing.assert_close(cpp.gate(x), TORCH.gate(x), equal_nan=True)


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [64, 576, 3])
def test_apart(cpp, shape, width, biased):
    """Each token fills 0..1, whatever the others do, and the product comes back as it was."""
    x = torch.randn(*shape, width) * torch.rand(*shape, 1) + torch.randn(*shape, 1)
    x[0, 0] = x[0, 0].abs() + 1  # a token without zero in its range
    weight, bias = torch.randn(7, width), torch.randn(7) if biased else None
    seen = []

    def product(spread):
        seen.append(spread.clone())
        return spread @ weight.T

    want = torch.nn.functional.linear(x, weight, bias)
    for pointwise in (cpp, TORCH):
        got = pointwise.apart(x, product, weight.sum(1), bias)
        assert torch.equal(seen[-1].amin(-1), torch.zeros(shape))
        assert torch.equal(seen[-1].amax(-1), torch.ones(shape))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(*seen)
    assert cpp.apart(torch.zeros(1, 1, width), product, weight.sum(1)).isfinite().all()


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", [64, 80, 8, 6])
def test_store(cpp, stored, shape, dim):
    (batch, new), heads, kv_heads = shape, 6, 2
    qkv = torch.randn(batch, new, heads + 2 * kv_heads, dim)
    qk, v = qkv.split((heads + kv_heads, kv_heads), dim=2)
    tables = torch.randn(2, batch, new, dim)
    rows = torch.randperm(batch + 1)[:batch]
    at = Entries(rows, torch.arange(batch) * 7, new)
    results = []
    for pointwise in (cpp, TORCH):
        k_cache, v_cache = torch.zeros(2, batch + 1, kv_heads, 600, dim, dtype=stored)
        q = pointwise.store(qk, v, tables, k_cache, v_cache, at)
        results.append((q, k_cache, v_cache))
    (q, k, v), (want_q, want_k, want_v) = results
    torch.testing.assert_close(q, want_q)
    torch.testing.assert_close(k, want_k)  # a rounding apart at most: sums may be fused
    assert torch.equal(v, want_v)


def test_what_is_not_a_number_is_stored_as_torch_stores_it(cpp):
    v = torch.zeros(1, 1, 1, 8)
    v[..., :3] = NOT_NUMBERS
    v[..., 3] = 1 + 2**-8  # a tie between two bfloat16
    v[..., 4] = 1 + 3 * 2**-8
    caches = []
    for pointwise in (cpp, TORCH):
        k_cache, v_cache = torch.zeros(2, 1, 1, 4, 8, dtype=torch.bfloat16)
        at = Entries(torch.tensor([0]), torch.tensor([1]), 1)
        pointwise.store(v.expand(1, 1, 2, 8).contiguous(), v, torch.ones(2, 1, 1, 8), k_cache,
                        v_cache, at)  # fmt: skip
        caches.append(v_cache)
    torch.testing.assert_close(*caches, rtol=0, atol=0, equal_nan=True)


def test_what_it_does_not_take_goes_to_torch(cpp):
    half = torch.randn(1, 2, 16, dtype=torch.bfloat16)
    weight = torch.ones(16, dtype=torch.bfloat16)
    assert torch.equal(cpp.norm(half, weight, 1e-5), TORCH.norm(half, weight, 1e-5))
    across = torch.randn(16, 2, 1).transpose(0, 2)
    assert torch.equal(cpp.gate(across), TORCH.gate(across))
