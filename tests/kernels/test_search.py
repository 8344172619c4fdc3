"""The search in C++ equals torch's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magicdec.kernels import native_build
from magicdec.kernels.candidates import Candidates
from magicdec.kernels.native_build import BuildError
from magicdec.kernels.native_search import NativeSearch
from magicdec.kernels.search import KeySearch, starts

CPU = torch.device("cpu")
TORCH = KeySearch()
BLOCK = 256  # keys per work item of the kernel
EDGES = sorted({max(1, edge + d) for edge in (8, 32, BLOCK, 2 * BLOCK) for d in (-1, 0, 1)})
STORED = st.sampled_from([torch.float32, torch.bfloat16])
LENGTHS = st.lists(st.sampled_from(EDGES) | st.integers(1, 600), min_size=1, max_size=4)
LIMITS = st.sampled_from([0, 1, 7, 32, 300])
TOLERANCE = dict(rtol=1e-5, atol=1e-6)

many = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def cpp() -> NativeSearch:
    try:
        native_build.find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    return NativeSearch(native_build.load(lambda _what: None))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def candidates(lengths, first=0) -> Candidates:
    return Candidates(first, tuple(lengths), CPU)


@given(
    lengths=LENGTHS, stored=STORED, heads=st.integers(1, 3), group=st.integers(1, 9),
    dim=st.sampled_from([64, 80, 8, 24]), count=st.integers(1, 2), seed=st.integers(0, 99),
)  # fmt: skip
@many
def test_mass_of_keys(cpp, threads, lengths, stored, heads, group, dim, count, seed):
    threads(count)
    made = torch.Generator().manual_seed(seed)
    rows = candidates(lengths, first=1)
    cache = torch.randn(len(lengths) + 2, heads, 640, dim, generator=made).to(stored)
    keys = cache[rows.rows, :, : rows.longest]
    queries = 3 * torch.randn(len(lengths), heads, group, dim, generator=made)
    found = cpp.mass(queries, keys, rows)
    torch.testing.assert_close(found, TORCH.mass(queries, keys, rows), **TOLERANCE)
    torch.testing.assert_close(found.sum(-1), torch.full(found.shape[:2], float(group)))
    for i, length in enumerate(lengths):
        assert not found[i, :, length:].any()
        own = candidates([length])
        alone = cpp.mass(queries[i : i + 1], keys[i : i + 1, :, :length], own)
        assert torch.equal(alone[0], found[i, :, :length])


@given(
    lengths=LENGTHS, heads=st.integers(1, 3), group=st.integers(1, 9), parts=st.integers(1, 5),
    bits=st.integers(1, 8), sinks=LIMITS, recent=LIMITS, count=st.integers(1, 2),
    seed=st.integers(0, 99),
)  # fmt: skip
@many
def test_mass_of_codes(
    cpp, threads, lengths, heads, group, parts, bits, sinks, recent, count, seed
):
    threads(count)
    made = torch.Generator().manual_seed(seed)
    rows, n = candidates(lengths), len(lengths)
    tables = 4 * torch.randn(n, heads, parts, 2**bits, group, generator=made)
    codes = torch.randint(0, 2**bits, (n, heads, 640, parts), generator=made).byte()
    args = (tables, codes[:, :, : rows.longest], rows)
    found = cpp.code_mass(*args, sinks=sinks, recent=recent)
    want = TORCH.code_mass(*args, sinks=sinks, recent=recent)
    torch.testing.assert_close(found, want, **TOLERANCE)
    for i, length in enumerate(lengths):
        taking = range(min(sinks, length), max(min(sinks, length), length - recent))
        assert bool((found[i].sum(-1) > 0).all()) == bool(taking)
        assert not found[i, :, : taking.start].any() and not found[i, :, taking.stop :].any()


@given(
    lengths=LENGTHS, budget=st.integers(1, 300), sinks=LIMITS, recent=LIMITS,
    values=st.sampled_from([2, 50, 10**6]), count=st.integers(1, 2), seed=st.integers(0, 99),
)  # fmt: skip
@many
def test_best(cpp, threads, lengths, budget, sinks, recent, values, count, seed):
    threads(count)
    made = torch.Generator().manual_seed(seed)
    rows = candidates(lengths)
    # Few values tie; small ones lie many octaves apart, as attention's weights do.
    scores = torch.randint(-values, values, (len(lengths), 3, rows.longest), generator=made)
    scores = scores * 10.0 ** -torch.randint(0, 30, scores.shape, generator=made)
    options = dict(sinks=sinks, recent=recent)
    found = cpp.best(scores.clone(), rows, budget, **options)
    want = TORCH.best(scores.clone(), rows, budget, **options)
    assert found.shape == want.shape and found.dtype is torch.int64
    assert found.min() >= 0 and found.max() < rows.longest
    for i, length in enumerate(lengths):
        width = min(budget, length)
        last = min(recent, budget, length)
        pinned = {*range(min(sinks, budget - last, length)), *range(length - last, length)}
        for head in range(3):
            own, other = (x[i, head, :width].tolist() for x in (found, want))
            assert own == sorted(set(own)) and own[-1] < length
            assert pinned <= set(own)
            chosen, theirs = (scores[i, head, x].sort().values for x in (own, other))
            assert torch.equal(chosen, theirs)  # which of equal scores is open
            # Of equal ones the last.
            mine = {(float(scores[i, head, s]), s) for s in own if s not in pinned}
            missed = {*range(length)} - {*own}
            if mine and missed:
                assert min(mine) > max((float(scores[i, head, s]), s) for s in missed)


def test_best_of_extremes(cpp):
    scores = torch.tensor([0.0, torch.inf, -1.0, -torch.inf, 3e38, -0.0, 1e-45, -3e38])[None, None]
    for budget, want in ((1, [1]), (2, [1, 4]), (3, [1, 4, 6]), (6, [0, 1, 2, 4, 5, 6])):
        found = cpp.best(scores.clone(), candidates([8]), budget)
        assert found.tolist() == [[want]]


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("width", [1, 9, 700])  # the last is shared among threads
@pytest.mark.parametrize("dim", [64, 6])
def test_gather(cpp, threads, stored, width, dim):
    threads(2)
    cache = torch.randn(5, 3, 900, dim).to(stored)
    rows = slice(1, 4)
    at = torch.randint(0, 900, (3, 3, width))
    want = torch.stack([torch.stack([cache[1 + b, h, at[b, h]] for h in range(3)])
                        for b in range(3)])  # fmt: skip
    flat = at + starts(cache, rows)
    strided = cache.new_zeros(3, 3, width + 5, dim)
    for search in (cpp, TORCH):
        assert torch.equal(search.gather(cache, flat), want)
        out = torch.empty_like(want)
        assert search.gather(cache, flat, out) is out and torch.equal(out, want)
        search.gather(cache, flat, strided[:, :, :width])
        assert torch.equal(strided[:, :, :width], want) and not strided[:, :, width:].any()
        strided.zero_()


def test_what_it_does_not_take_goes_to_torch(cpp):
    rows, queries = candidates([9, 5]), torch.randn(2, 1, 3, 6)  # six dimensions
    keys = torch.randn(2, 1, 9, 6)
    assert torch.equal(cpp.mass(queries, keys, rows), TORCH.mass(queries, keys, rows))
    scores = torch.randn(2, 1, 9, dtype=torch.float64)
    found, want = (s.best(scores.clone(), rows, 4).sort().values for s in (cpp, TORCH))
    assert torch.equal(found, want)
