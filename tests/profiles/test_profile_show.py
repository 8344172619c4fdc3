"""`profile show` in every format and terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from magicdec.profiles.costs.step_times import NOT_MEASURED
from magicdec.profiles.recorded.schema import Cell


@pytest.fixture
def recorded(make, tmp_path) -> Path:
    cells = [
        make.cell(batch, context, gamma, budget=budget)
        for batch in (1, 4)
        for context in (1000, 8000)
        for budget in (128, 512)
        for gamma in (1, 3)
    ]
    failed = Cell(key=make.cell(64).key, status="failed", error="needs 12 GB, 4 GB are free")
    return make.write(tmp_path / "p.jsonl", *cells, failed)


def shell(*arguments: object, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "magicdec.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env={**os.environ, **env})


def test_the_table_tells_all_parts(recorded, magicdec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = magicdec("profile", "show", recorded)
    assert code == 0 and err == ""
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "16 cells, 1 failed" in out and "needs 12 GB" in out
    # Ω 3.4 tokens in 3·0.02 + 0.12 s, against 0.1 s a token
    assert f"{0.1 * 3.4 / 0.18:.2f}×" in out
    for part in ("best measured speedup", "against budget", "by position", "phases", "predicted"):
        assert part in out
    predicted, measured = (
        1.5,
        [0.1 * omega / (g * 0.02 + 0.12) for g, omega in ((1, 1.9), (3, 3.4))],
    )
    mean = sum(abs(predicted / m - 1) for m in measured) / 2
    assert f"mean error {mean:.0%}" in out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_narrow_terminals_get_fewer_columns_and_smaller_plots(
    recorded, magicdec, monkeypatch, width
):
    monkeypatch.setenv("COLUMNS", str(width))
    out = magicdec("profile", "show", recorded)[1]
    assert all(len(line) <= width for line in out.splitlines())
    heading = next(line for line in out.splitlines() if " drafter " in line)
    assert {"context", "drafter", "γ", "speedup", "lossless"} <= set(heading.split())
    assert ("tokens/s" in heading, "predicted" in heading) == (width > 60, width > 80)
    assert ("no room for: " in out) == (width < 120)
    for part in ("best measured speedup", "against budget", "by position", "phases", "predicted"):
        assert part in out


def test_phase_shares_are_those_of_the_fastest_cells(recorded, magicdec):
    out = magicdec("profile", "show", recorded)[1]
    line = next(line for line in out.splitlines() if line.startswith("B 4, 8,000, γ 3"))
    assert f"draft {0.06 / 0.18:.0%} verify {0.12 / 0.18:.0%}" in line
    drawn = line.removeprefix("B 4, 8,000, γ 3").strip().split(" ")[0]
    assert drawn.count("v") == pytest.approx(2 * drawn.count("d"), abs=1)


def test_step_times_are_shown_and_null_is_a_dash(make, magicdec, tmp_path):
    cell = replace(make.cell(4), step=replace(NOT_MEASURED, plain=0.1, draft=0.02))
    out = magicdec("profile", "show", make.write(tmp_path / "p.jsonl", cell))[1]
    lines = out.splitlines()
    heading = next(i for i, line in enumerate(lines) if "T_T" in line)
    assert lines[heading + 1].split() == ["4", "1,000", "3", "100.00", "20.00", "-", "-"]


def test_options_of_any_kind_can_be_sorted(make, magicdec, tmp_path):
    cells = [
        replace(make.cell(), key=replace(make.cell().key, selector_options=(("a", value),)))
        for value in (1, "x", None, 2.5)
    ]
    path = make.write(tmp_path / "p.jsonl", *cells)
    assert magicdec("profile", "show", path)[0] == 0
    assert magicdec("profile", "compare", path, path)[0] == 0
    assert magicdec("profile", "export", path, "--to", "aiconfigurator")[0] == 0


def test_json_is_the_file_as_one_document(recorded, magicdec):
    code, out, _ = magicdec("profile", "show", recorded, "--format", "json")
    document = json.loads(out)
    lines = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert code == 0 and document["schema"] == "magicdec.profile/2"
    by_key = {json.dumps(cell["key"]): cell for cell in lines[1:]}
    assert [by_key[json.dumps(cell["key"])] for cell in document["cells"]] == document["cells"]
    assert len(document["cells"]) == 17


def test_csv_and_markdown_have_every_cell_and_nothing_for_null(recorded, magicdec):
    rows = list(
        csv.DictReader(io.StringIO(magicdec("profile", "show", recorded, "--format", "csv")[1]))
    )
    assert len(rows) == 17
    failed = next(row for row in rows if row["status"] == "failed")
    assert failed["speedup_decode"] == failed["num_spec_steps"] == failed["plain_ms"] == ""
    assert float(rows[0]["draft_ms"]) == 20.0
    table = magicdec("profile", "show", recorded, "--format", "md")[1].splitlines()
    assert len(table) == 19 and table[1].startswith("| ---")


def test_an_svg_is_drawn_beside(recorded, magicdec, tmp_path):
    picture = tmp_path / "p.svg"
    code, out, err = magicdec("profile", "show", recorded, "--svg", picture)
    assert code == 0 and "best measured speedup" in out and str(picture) in err
    assert picture.read_text().startswith("<svg")
    code, _, err = magicdec("profile", "show", recorded, "--svg", tmp_path)
    assert code == 2 and "is a folder" in err


def test_a_header_alone_is_a_profile(make, magicdec, tmp_path):
    path = make.write(tmp_path / "p.jsonl")
    for format in ("table", "json", "csv", "md"):
        code, _, err = magicdec("profile", "show", path, "--format", format)
        assert code == 0 and err == ""
    assert "0 cells" in magicdec("profile", "show", path)[1]


def test_cells_without_a_plain_run_show_dashes_not_zeros(make, magicdec, tmp_path):
    data = json.loads(make.lines(make.cell())[1])
    for repeat in data["repeats"]:
        repeat["plain"] = None
    data |= {"speedup": {"decode": None, "end_to_end": None}, "predicted": None}
    data["lossless"] = {"checked": False}
    path = tmp_path / "p.jsonl"
    path.write_text(make.lines()[0] + "\n" + json.dumps(data) + "\n")
    code, out, _ = magicdec("profile", "show", path)
    assert code == 0 and "unchecked" in out and "0.00×" not in out


def test_pipes_have_no_colour_and_narrow_encodings_no_question_marks(recorded):
    done = shell("profile", "show", recorded, PYTHONIOENCODING="ascii", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    assert "?" not in text and "\x1b" not in text


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_has_colour_unless_told(recorded, no_color):
    leader, follower = pty.openpty()
    env = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-m", "magicdec.cli", "profile", "show", str(recorded)]
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        out = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            if not part:
                break
            out += part
    os.close(leader)
    assert process.returncode == 0
    assert (b"[36m" in out or b"[32m" in out) == (not no_color)


def test_hostile_names_reach_no_terminal(make, magicdec, tmp_path):
    data = [json.loads(line) for line in make.lines(make.cell())]
    data[0]["model"] = "\x1b[2J\x1b]0;title\x07[bold]m[/bold]"
    data[0]["workload"]["documents"][0]["name"] = "../../\x1b[31m[/red]book"
    data[1]["key"]["selector"] = "[link=evil]\x9b31m"
    data[1]["error"] = "a\r\nb"
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, data)) + "\n")
    for format in ("table", "csv", "md", "json"):
        code, out, err = magicdec("profile", "show", path, "--format", format)
        assert code == 0, err
        assert not set(out + err) & set("\x1b\x07\x9b\r")
    assert "[link=evil]" in magicdec("profile", "show", path, "--format", "csv")[1]


def test_a_torn_file_is_shown_with_a_warning(recorded, magicdec):
    recorded.write_bytes(recorded.read_bytes()[:-100])
    code, out, err = magicdec("profile", "show", recorded)
    assert code == 0 and "16 cells" in out
    assert err.startswith("warning: ") and "torn" in err and len(err.splitlines()) == 1


def test_start_is_cheap(recorded):
    code = (
        "import sys; from magicdec.cli.main import run_command_line;"
        f"run_command_line(['profile', 'show', {str(recorded)!r}]);"
        "print([m for m in ('torch', 'transformers', 'textual', 'scipy') if m in sys.modules],"
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"
