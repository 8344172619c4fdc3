"""The attention benchmark's arithmetic; its figures are nobody's test."""

from __future__ import annotations

from magicdec.profiles.bench import attention
from magicdec.profiles.bench.attention import AttentionBench
from magicdec.profiles.bench.machine import Machine


def test_floor_is_the_larger_of_reading_and_arithmetic():
    machine = Machine()
    machine.sample()
    reading = machine.floor(10**9, 1)
    assert reading == 10**9 / machine.read_rate
    assert machine.floor(1, 10**9) == 10**9 / machine.gemm_rate
    assert machine.floor(10**9, 10**3) == reading


def test_a_figure_for_each_shape_and_storage(monkeypatch):
    monkeypatch.setattr(attention, "POOL_BYTES", 0)
    monkeypatch.setattr(attention, "GOAL_CONTEXT", 100)
    found = list(AttentionBench(rows=(1, 2), contexts=(100,), widths=(1, 4), rounds=1).run())
    assert len(found) == 2 * 2 * 2
    assert all(m.value > 0 and m.at_most for m in found)
    assert [m.goal for m in found] == [1.35, 1.35, None, None] * 2
    assert ["sdpa" in m.note for m in found[:4]] == [True] * 4
    assert "fp32, 2 × 100, T 4" in found[3].name
