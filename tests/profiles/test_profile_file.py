"""The profile file: what is written is read, and nothing else is believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.engine.events import PhaseTimes
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.recorded.decode import cell_from_json
from magicdec.profiles.recorded.encode import cell_to_json, header_to_json
from magicdec.profiles.recorded.reader import MAX_BYTES, read_profile
from magicdec.profiles.recorded.schema import Cell, CellKey, Repeat, Sample


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_profile(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    assert message.isprintable()
    return message


def test_what_is_written_is_read(make, tmp_path):
    cells = [make.cell(1), make.cell(4, gamma=1), make.cell(4, selector="streaming", noise=(1.0,))]
    failed = Cell(key=make.cell(8).key, status="failed", error="needs 12 GB, 4 GB are free")
    path = make.write(tmp_path / "p.jsonl", *cells, failed)
    profile = read_profile(path)
    assert profile.header == make.header
    assert profile.cells == (*cells, failed)
    assert profile.finished == tuple(cells)
    assert profile.warnings == ()


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    gamma = draw(st.integers(1, 8))
    steps = draw(st.lists(st.tuples(st.integers(1, gamma), st.floats(0, 1)), max_size=30))
    drafted, accepted = [0] * gamma, [0] * (gamma + 1)
    for drawn, share in steps:
        for position in range(drawn):
            drafted[position] += 1
        accepted[round(share * drawn)] += 1
    seconds = st.just(0.0) | st.floats(1e-9, 1e6)
    sample = st.builds(
        Sample, st.integers(0, 10**9), seconds, st.integers(0, 10**6),
        st.builds(PhaseTimes, *[seconds] * 6),
    )  # fmt: skip
    key = CellKey(
        batch=draw(st.integers(1, 10**5)), context=draw(st.integers(1, 10**8)),
        selector=draw(st.sampled_from(["snapkv", "a.b:C"])),
        selector_options=(("sinks", draw(st.integers(0, 9))),),
        budget=draw(st.integers(1, 10**8)), gamma=gamma, temperature=draw(st.floats(0, 100)),
        draft_weights="same",
    )  # fmt: skip
    repeats = st.lists(st.builds(Repeat, st.none() | sample, sample), min_size=1, max_size=4)
    return Cell(
        key=key, repeats=tuple(draw(repeats)), drafted_per_position=tuple(drafted),
        accepted_per_step=tuple(accepted),
        step=draw(st.builds(StepTimes, *[st.none() | seconds] * 4, st.none())),
    )  # fmt: skip


@given(cells())
@settings(max_examples=60, deadline=None)
def test_any_cell_survives_the_file_and_its_counts_agree(cell):
    read = cell_from_json(json.loads(json.dumps(cell_to_json(cell), allow_nan=False)), "here")
    if cell.drafted:
        assert read == cell
        assert sum(read.accepted_per_position) == read.num_accepted_draft_tokens
        assert list(read.accepted_per_position) == sorted(read.accepted_per_position, reverse=True)
    else:  # nothing was drafted: null, not zeros
        assert read == replace(cell, drafted_per_position=(), accepted_per_step=())
        assert read.acceptance_rate is None and read.mean_acceptance_length is None


def test_speedup_is_the_median_of_ratios_at_equal_tokens(make):
    cell = make.cell(gamma=3, noise=(1.0, 2.0, 4.0))
    # Ω = 1 + .9 + .8 + .7 = 3.4 tokens a step of (3·0.02 + 0.12) s, against 0.1 s a token
    assert cell.speedup == pytest.approx(0.1 * 3.4 / (0.18 * 2))
    assert cell.mean_acceptance_length == pytest.approx(3.4)
    before, after = 34.0, 36.0
    assert cell.speedup_end_to_end == pytest.approx((1 + before) / (1 + after))


# --- hostile files -------------------------------------------------------------------------------

POISON: dict[str, Any] = {
    "huge": 10**400, "float": 1.5, "negative": -1, "bool": True, "text": "3", "list": [],
    "null": None,
}  # fmt: skip


@pytest.mark.parametrize("value", POISON.values(), ids=POISON)
@pytest.mark.parametrize("member", ["batch", "context", "budget", "gamma"])
def test_a_key_is_a_bounded_integer(make, tmp_path, member, value):
    data = cell_to_json(make.cell())
    data["key"][member] = value
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([make.lines()[0], json.dumps(data), make.lines(make.cell())[1]]))
    message = refused(path)
    assert "line 2" in message and member in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_none(make, tmp_path, number):
    line = make.lines(make.cell())[1].replace('"seconds": ', f'"seconds": {number}, "was": ', 1)
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([make.lines()[0], line, *make.lines(make.cell(2))[1:]]) + "\n")
    assert "line 2" in refused(path)


def edit(change: str) -> Any:
    def apply(data: dict[str, Any]) -> None:
        exec(change, {"d": data, "s": data["speculative_decoding"]})

    return apply


@pytest.mark.parametrize(
    "change",
    [
        "s['accepted_per_step'][0] += 1",
        "s['drafted_per_position'][0] -= 1",
        "s['drafted_per_position'][2] += 1",
        "s['drafted_per_position'] = [10**18] * 3",
        "s['accepted_per_step'] = [1] * 1000",
        "s['acceptance_rate_per_position'][1] = 0.99",
        "s['draft_acceptance_rate'] = 0.99",
        "s['num_accepted_draft_tokens'] += 1",
        "d['speedup']['decode'] = 9.0",
        "d['repeats'][0]['speculative']['num_spec_steps'] += 1",
        "d['repeats'][0]['speculative']['row_steps'] = 2**60",
        "[r['speculative'].update(row_steps=99) for r in d['repeats']]",
        "d['gamma'] = {'mean': 2.0}",
        "d['repeats'] = []",
        "d['repeats'] = [d['repeats'][0]] * 5000",
        "d['repeats'] = 4_000_000_000",
        "d['status'] = 'fine'",
        "d['lossless'] = {'checked': 'yes'}",
        "d['step_s']['draft'] = -1",
        "d['peak_memory_bytes'] = 1e400",
        "d['key']['selector_options'] = {str(i): i for i in range(100)}",
        "d['key'] = [1]",
    ],
)
def test_figures_that_contradict_each_other(make, tmp_path, change):
    data = deepcopy(cell_to_json(make.cell()))
    edit(change)(data)
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([make.lines()[0], json.dumps(data), make.lines(make.cell(2))[1]]))
    assert "line 2" in refused(path)


def test_deep_nesting(make, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([make.lines()[0], "[" * 100_000, make.lines(make.cell())[1]]))
    assert "nested" in refused(path)


def test_a_torn_last_line_is_dropped_and_said(make, tmp_path):
    whole = "\n".join(make.lines(make.cell(1), make.cell(2)))
    path = tmp_path / "p.jsonl"
    path.write_text(whole[:-200])
    profile = read_profile(path)
    assert [cell.key.batch for cell in profile.cells] == [1]
    assert len(profile.warnings) == 1 and "torn" in profile.warnings[0]


def test_a_last_line_torn_inside_a_character(make, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes("\n".join(make.lines(make.cell(1))).encode() + b'\n{"key": "\xc3')
    assert len(read_profile(path).cells) == 1


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(make, tmp_path):
    lines = make.lines(make.cell(1), make.cell(2))
    lines[1] = lines[1][:-50]
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(lines))
    message = refused(path)
    assert "p.jsonl, line 2" in message and message.endswith("; delete that line")


def test_a_cell_measured_again_counts_once(make, tmp_path):
    failed = Cell(key=make.cell(1).key, status="failed", error="out of memory")
    again = make.cell(1, noise=(2.0,))
    path = make.write(tmp_path / "p.jsonl", failed, make.cell(1), again)
    profile = read_profile(path)
    assert profile.cells == (again,)
    assert len(profile.warnings) == 1 and "measured before" in profile.warnings[0]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("magicdec.profile/3", "upgrade"),
        ("magicdec.profile/0", "record it again"),
        ("magicdec.profile/" + "9" * 99, "no magicdec profile"),
        ("\x1b[31mred", "no magicdec profile"),
        (None, "no magicdec profile"),
        (["magicdec.profile/1"], "no magicdec profile"),
    ],
)
def test_other_schemas(make, tmp_path, schema, said):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({**header_to_json(make.header), "schema": schema}) + "\n")
    assert said in refused(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"\0" * 1000, "damaged"),
        (b"\xff\xfe\n{}", "not UTF-8"),
        (b"hello\n", "damaged"),
        (b"[]\n", "no magicdec profile"),
        (b"1\n", "no magicdec profile"),
        (b'{"name": "a benchmark"}\n', "it has no schema, a profile's is magicdec.profile/"),
        (b'{"schema": "other/1"}\n', "its schema is 'other/1', a profile's is magicdec.profile/"),
        (b'{"schema": null}\n', "`magicdec profile record`, `tune -o`"),
    ],
)
def test_files_that_are_no_profile(tmp_path, content, said):
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    assert said in refused(path)


def test_places_that_are_no_file(tmp_path):
    assert "directory" in refused(tmp_path)
    assert refused(Path("/dev/zero")) == "'/dev/zero' is a device; give a file"
    assert "no file" in refused(tmp_path / "gone\x1b[2J")
    assert "cannot read" in refused(Path("a\0b"))


def test_a_file_of_gigabytes_is_refused_unread(tmp_path):
    path = tmp_path / "p.jsonl"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES * 40)  # sparse
    assert "64 MiB" in refused(path)


def test_a_line_of_megabytes_is_refused(make, tmp_path):
    data = cell_to_json(make.cell())
    data["error"] = "x" * 5_000_000
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([make.lines()[0], json.dumps(data), *make.lines(make.cell(2))[1:]]))
    assert "longer than 4 MiB" in refused(path)


def test_lines_without_end_are_refused_unparsed(make, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(make.lines()[0] + "\n" + "{}\n" * 300_000)
    assert "lines" in refused(path)


@pytest.mark.parametrize(
    ("given", "shown"),
    [("org/model", "org/model"), ("/home/me/model", "model"), ("~/m", "m"), ("C:\\a\\m", "m")],
)
def test_a_models_folder_is_nobodys_business(make, tmp_path, given, shown):
    make.header = replace(make.header, model=given)
    assert read_profile(make.write(tmp_path / "p.jsonl")).header.model == shown


def test_names_are_harmless(make, tmp_path):
    header = header_to_json(make.header)
    header["model"] = "\x1b]0;gotcha\x07model\n\u202egnp" + "x" * 100_000
    header["environment"]["\x1b[2J"] = "\ud800"
    header["workload"]["documents"] = [
        {"name": "/home/someone/secret/plan.txt"}, {"name": "C:\\docs\\a.txt"}, {"name": "../.."},
    ]  # fmt: skip
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(header) + "\n")
    read = read_profile(path).header
    assert len(read.model) == 200
    for text in (read.model, *read.environment, *map(str, read.environment.values())):
        assert not set(text) & set("\x1b\x07\n\u202e\ud800")
    assert [source.name for source in read.documents] == ["plan.txt", "a.txt", ".."]


WEIRD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([10**400, -1, 2**63, "\x1b[2J", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every member of a JSON value, at any depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, member in inner if isinstance(value, dict | list) else ():
        found.append((*path, key))
        if isinstance(member, dict | list):
            found += places(member, (*path, key))
    return found


@given(st.data())
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_stands_in_a_member_is_read_or_refused_in_one_line(make, tmp_path, data):
    lines = [json.loads(line) for line in make.lines(make.cell(), make.cell(2))]
    place = data.draw(st.sampled_from(places(lines)))
    target = lines
    for key in place[:-1]:
        target = target[key]
    if data.draw(st.booleans()) or isinstance(target, list):
        target[place[-1]] = data.draw(WEIRD)
    else:
        del target[place[-1]]
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    try:
        profile = read_profile(path)
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1 and str(error).isprintable()
        return
    for cell in profile.cells:  # what is believed can be computed with, and written again
        assert cell_from_json(json.loads(json.dumps(cell_to_json(cell), allow_nan=False)), "x")


@given(st.binary(max_size=200), st.integers(0, 3000))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_bytes_anywhere_are_read_or_refused_in_one_line(make, tmp_path, noise, at):
    whole = "\n".join(make.lines(make.cell())).encode() + b"\n"
    path = tmp_path / "p.jsonl"
    path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    try:
        read_profile(path)
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1 and str(error).isprintable()


# --- writing -------------------------------------------------------------------------------------


def test_reading_needs_no_heavy_library():
    code = (
        "import sys, magicdec.profiles.recorded.writer;"
        "print([m for m in ('torch', 'numpy', 'transformers', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]", done.stderr
