"""The C++ kernel equals the reference; it is built once, or something else stands in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magicdec.engine.device import pick_attention
from magicdec.engine.errors import ConfigError, ModelError
from magicdec.kernels import native_build
from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.backends import get_backend
from magicdec.kernels.native_attention import BLOCK_QUERIES, CpuAttention
from magicdec.kernels.native_build import BuildError
from magicdec.kernels.reference import ReferenceAttention
from magicdec.kernels.sdpa import SdpaAttention

CPU = torch.device("cpu")
BLOCK = 256  # keys per work item of the kernel
EDGES = sorted({max(1, edge + d) for edge in (8, 32, 64, BLOCK, 2 * BLOCK) for d in (-1, 0, 1)})

#: Scores of size 10 are off by an ulp or two, 1e-6, and the weights relatively by as much.
TOLERANCE = dict(rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def kernel() -> CpuAttention:
    try:
        native_build.find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    return CpuAttention(lambda _what: None)  # with a compiler, a kernel that does not build fails


def attend(backend, q, k, v, rows, lengths, window=None):
    shape = AttentionShape(tuple(rows), tuple(lengths), q.shape[1], window)
    plan = backend.plan(
        shape, query_heads=q.shape[2], kv_heads=k.shape[1], dtype=q.dtype, device=CPU
    )
    return plan.attend(q, k, v)


def tensors(batch, new, heads, kv_heads, dim, *, rows, capacity, stored, seed=0):
    """q as the decoder makes it, a view of q and k together; caches full of random numbers."""
    made = torch.Generator().manual_seed(seed)
    qk = torch.randn(batch, new, heads + kv_heads, dim, generator=made)
    k, v = torch.randn(2, rows, kv_heads, capacity, dim, generator=made).to(stored)
    return 2 * qk[:, :, :heads], k, v


@st.composite
def problems(draw):
    new = draw(st.integers(1, 2 * BLOCK_QUERIES + 3))
    lengths = st.sampled_from([e for e in EDGES if e >= new]) | st.integers(new, 600)
    batch = draw(st.lists(lengths, min_size=1, max_size=4))
    rows = draw(st.permutations(range(len(batch) + draw(st.integers(0, 2)))))
    return dict(
        new=new,
        lengths=batch,
        rows=rows[: len(batch)],
        cached_rows=len(rows),
        group=draw(st.integers(1, 8)),
        kv_heads=draw(st.integers(1, 3)),
        dim=draw(st.sampled_from([64, 80, 96, 128, 8, 24])),
        window=draw(st.none() | st.sampled_from([1, 7, 8, 64, 257]) | st.integers(1, 700)),
        stored=draw(st.sampled_from([torch.float32, torch.bfloat16])),
        threads=draw(st.integers(1, 4)),
    )


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(problem=problems())
def test_equals_the_reference_and_reads_no_padding(kernel, threads, problem):
    threads(problem["threads"])
    lengths, rows, kv_heads = problem["lengths"], problem["rows"], problem["kv_heads"]
    q, k, v = tensors(
        len(rows), problem["new"], problem["group"] * kv_heads, kv_heads, problem["dim"],
        rows=problem["cached_rows"], capacity=max(lengths) + 9, stored=problem["stored"],
    )  # fmt: skip
    for row in range(problem["cached_rows"]):  # what may not be looked at is not a number
        valid = lengths[rows.index(row)] if row in rows else 0
        k[row, :, valid:] = v[row, :, valid:] = torch.nan
    case = (q, k, v, rows, lengths, problem["window"])
    torch.testing.assert_close(
        attend(kernel, *case), attend(ReferenceAttention(), *case), **TOLERANCE
    )


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_every_length_around_the_block_edges(kernel, stored):
    q, k, v = tensors(1, 4, 6, 2, 64, rows=1, capacity=600, stored=stored)
    for length in [e for e in EDGES if e >= 4]:
        case = (q, k, v, [0], [length])
        torch.testing.assert_close(
            attend(kernel, *case), attend(ReferenceAttention(), *case), **TOLERANCE
        )


def test_values_before_every_window_are_not_looked_at(kernel):
    q, k, v = tensors(1, 3, 2, 1, 64, rows=1, capacity=300, stored=torch.float32)
    want = attend(ReferenceAttention(), q, k, v, [0], [300], 20)
    k[:, :, : 300 - 2 - 20] = v[:, :, : 300 - 2 - 20] = torch.nan
    torch.testing.assert_close(attend(kernel, q, k, v, [0], [300], 20), want, **TOLERANCE)


def test_large_scores(kernel):
    """Softmax over scores of several hundred: neither overflow nor a vanished sum."""
    q, k, v = tensors(2, 5, 6, 2, 64, rows=2, capacity=400, stored=torch.float32)
    case = (40 * q, k, v, [0, 1], [400, 300])
    got = attend(kernel, *case)
    torch.testing.assert_close(got, attend(ReferenceAttention(), *case), rtol=1e-3, atol=1e-3)


def test_not_a_number_is_not_hidden(kernel):
    q, k, v = tensors(1, 1, 1, 1, 8, rows=1, capacity=9, stored=torch.float32)
    k[0, 0, 4, 3] = torch.nan
    assert attend(kernel, q, k, v, [0], [9]).isnan().all()


@pytest.mark.parametrize("window", [None, 300])
def test_a_query_gets_the_same_bits_alone_and_in_a_verify_pass(kernel, threads, window):
    """So plain and speculative decoding do not differ by attention."""
    lengths = [700, 258, 513]
    q, k, v = tensors(3, 5, 6, 2, 64, rows=3, capacity=700, stored=torch.float32)
    threads(4)
    together = attend(kernel, q, k, v, range(3), lengths, window)
    threads(1)
    for b in range(3):
        for t in range(5):
            alone = attend(kernel, q[b : b + 1, t : t + 1], k, v, [b], [lengths[b] - 4 + t], window)
            assert torch.equal(alone[0, 0], together[b, t])


def test_one_plan_serves_caches_that_lie_differently(kernel):
    q, k, v = tensors(2, 2, 4, 2, 64, rows=2, capacity=50, stored=torch.float32)
    plan = kernel.plan(
        AttentionShape((0, 1), (50, 44), 2), query_heads=4, kv_heads=2,
        dtype=torch.float32, device=CPU,
    )  # fmt: skip
    want = attend(ReferenceAttention(), q, k, v, (0, 1), (50, 44))
    by_key = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    for caches in ((k, v), by_key, (k, v)):
        torch.testing.assert_close(plan.attend(q, *caches), want, **TOLERANCE)


def test_bfloat16_queries_come_back_as_bfloat16(kernel):
    q, k, v = tensors(1, 2, 4, 2, 64, rows=1, capacity=50, stored=torch.bfloat16)
    case = (q.bfloat16(), k, v, [0], [50])
    got = attend(kernel, *case)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got, attend(ReferenceAttention(), *case), rtol=8e-3, atol=8e-3)


def test_a_prefill_is_cut_into_blocks_of_queries(kernel):
    """Each query gets the bits it gets alone, in whole blocks and in the rest."""
    new = 2 * BLOCK_QUERIES + 5
    q, k, v = tensors(2, new, 6, 2, 64, rows=2, capacity=400, stored=torch.float32)
    together = attend(kernel, q, k, v, (1, 0), (400, 290))
    torch.testing.assert_close(
        together, attend(ReferenceAttention(), q, k, v, (1, 0), (400, 290)), **TOLERANCE
    )
    for t in (0, BLOCK_QUERIES - 1, BLOCK_QUERIES, new - 1):
        alone = attend(kernel, q[1:, t : t + 1], k, v, [0], [290 - new + t + 1])
        assert torch.equal(alone[0, 0], together[1, t])


@pytest.mark.parametrize("new", [4, BLOCK_QUERIES + 1])
def test_heads_that_the_kernel_does_not_take_are_left_to_sdpa(kernel, new):
    q, k, v = tensors(1, new, 4, 2, 12, rows=1, capacity=50, stored=torch.float32)
    case = (q, k, v, [0], [50])
    assert torch.equal(attend(kernel, *case), attend(SdpaAttention(), *case))


@pytest.fixture
def no_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_without_a_compiler_sdpa_stands_in_unless_native_was_asked_for(no_cache, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(no_cache))
    notices = []
    backend = pick_attention("auto", CPU, lambda *_: None, notices)
    assert backend.name == "sdpa"
    (notice,) = notices
    assert "no C++ compiler" in notice and "g++" in notice and "\n" not in notice
    with pytest.raises(ModelError, match=r"no C\+\+ compiler.*--attention auto"):
        pick_attention("native", CPU, lambda *_: None, notices)


@pytest.mark.parametrize(
    ("compiler", "cause"),
    [("no-such-compiler", "no-such-compiler"), ("false", "false failed"), ("true", "cannot write")],
)
def test_a_compiler_that_fails_is_named(compiler, cause, no_cache, monkeypatch, tmp_path):
    if compiler != "no-such-compiler":
        program = tmp_path / compiler
        program.write_text(f"#!/bin/sh\nexit {int(compiler == 'false')}\n")
        program.chmod(0o755)
        compiler = str(program)
    monkeypatch.setenv("CXX", compiler)
    notices = []
    assert pick_attention("auto", CPU, lambda *_: None, notices).name == "sdpa"
    (notice,) = notices
    assert cause in notice and "\n" not in notice


def test_two_processes_build_at_once(kernel, no_cache):
    script = (
        "from magicdec.kernels.native_build import load\n"
        "lines = []\n"
        "assert load(lines.append).magicdec_attention\n"
        "print(sum(line.startswith('building') for line in lines))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ)
        for _ in range(2)
    ]
    said = [process.communicate()[0].decode().strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sorted(said) == ["0", "1"]  # one built, the other waited
    kept = sorted(p.suffix or p.name for p in (no_cache / "native").iterdir())
    assert kept == [".lock", ".so"]  # nothing left behind
    lines = []
    native_build.load(lines.append)
    assert lines == []  # built already


def test_native_is_for_the_cpu():
    with pytest.raises(ValueError, match=r"native.*CPU only"):
        get_backend("native", torch.device("cuda"))
    with pytest.raises(ConfigError, match=r"native.*CPU only"):
        pick_attention("native", torch.device("cuda"), lambda *_: None, [])
