"""The attention benchmark's arithmetic; its figures are nobody's test."""

from __future__ import annotations

import json

import pytest
import typer

from magicdec.profiles.calibration.measure import LEAST_PLACES, READ_BYTES, Machine, caches, places
from tests.bench import __main__, attention
from tests.bench.attention import AttentionBench
from tests.bench.measurement import Measurement, over_floor

SIZES = {  # of each CPU: cache, size, who shares it
    "cpu0": {"index0": ("32K", "0"), "index3": ("96M", "0-1")},
    "cpu1": {"index0": ("32K", "1"), "index3": ("96M", "0-1")},
    "cpu2": {"index3": ("1G", "2")},
}


def test_arrays_are_larger_than_every_cache(tmp_path):
    for cpu, found in SIZES.items():
        for index, (size, shared) in found.items():
            folder = tmp_path / cpu / "cache" / index
            folder.mkdir(parents=True)
            said = {"size": size, "level": index[-1], "type": "Data", "shared_cpu_list": shared}
            for name, text in said.items():
                (folder / name).write_text(text + "\n")
    whole = 2 * 2**15 + 96 * 2**20 + 2**30
    assert caches(tmp_path) == whole
    assert (places(whole) - 1) * READ_BYTES >= 2 * whole
    assert caches(tmp_path / "nothing") == 0 and places(0) == LEAST_PLACES


def test_a_disturbed_sample_moves_no_floor():
    quiet, disturbed = Machine(), Machine()
    quiet._reads, quiet._gemms = [0.010, 0.011], [0.020, 0.021]
    disturbed._reads, disturbed._gemms = [0.010, 0.900, 0.030], [0.020, 0.500, 0.080]
    assert disturbed.floor(10**9, 10**9) == quiet.floor(10**9, 10**9)


def test_what_is_quicker_than_its_floor_is_an_error_and_no_figure():
    sound = over_floor("a", 0.02, 0.01, goal=1.3, note="n")
    assert sound == Measurement("a", 2.0, goal=1.3, at_most=True, note="n") and not sound.met
    for wrong in (
        over_floor("a", 0.0033, 0.01, goal=1.3, note="n"),
        over_floor("a", 0.02, 0.01, goal=1.3, note="n", others=[0.0033]),
    ):
        assert wrong.value is None and not wrong.met
        assert "3.3 ms is below the floor, 10 ms" in wrong.error and not wrong.note


def test_a_verify_pass_below_its_own_floor_is_an_error_too(monkeypatch):
    """The plain step beside it may be sound, and their ratio would be a figure."""
    from types import SimpleNamespace

    from tests.bench.decoding import GAMMAS, DecodingBench, Steps

    rows = SimpleNamespace(requests=lambda batch, context: [None] * batch)
    __main__ = DecodingBench(rows, Machine())
    monkeypatch.setattr(__main__, "_floor", lambda requests, width: 0.010 * width)
    quick = Steps(draft=0.002, verify=0.025, whole=0.03, gained=2.0, accepted=2.0)
    monkeypatch.setattr(__main__, "_steps", lambda requests, gamma: quick)
    plain, *verify = list(__main__._cell(1, 1000))[: 1 + len(GAMMAS)]
    assert plain.value == 3.0 and not plain.error
    assert [m.value is None for m in verify] == [False, True, True, True, True]
    assert "25 ms is below the floor, 30 ms" in verify[1].error
    assert verify[0].value == 0.025 / 0.03 and not verify[0].error


def test_the_benchmark_marks_errors_and_fails(tmp_path, monkeypatch, capsys):
    lines = [
        over_floor("sound", 0.02, 0.01, goal=2.5, note=""),
        over_floor("wrong", 0.003, 0.01, goal=1.3, note=""),
    ]
    monkeypatch.setattr(__main__, "measurements", lambda *_: iter(lines))
    with pytest.raises(typer.Exit) as ended:
        __main__.bench(output=tmp_path / "b.jsonl")
    assert ended.value.exit_code == 1
    said = capsys.readouterr().out
    assert "1 of 2 goals met" in said and "1 figure could not be measured" in said
    kept = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [line["value"] for line in kept] == [2.0, None] and "below the floor" in kept[1]["error"]


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
    assert all((m.at_most and (m.value or 0) >= 1) or m.error for m in found)
    assert [m.goal for m in found] == [1.35, 1.35, None, None] * 2
    assert ["sdpa" in m.note for m in found[:4]] == [True] * 4
    assert "fp32, 2 × 100, T 4" in found[3].name
