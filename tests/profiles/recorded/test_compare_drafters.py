"""examples/compare_drafters.py measures, goes on where it stopped, and prints a table."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from magicdec.profiles.recorded.reader import read_profile

SCRIPT = Path(__file__).parents[3] / "examples" / "compare_drafters.py"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_drafters", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_it_fills_its_table_and_goes_on_where_it_stopped(
    example: ModuleType, model: Path, document: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "compared"
    monkeypatch.setattr(example, "DISTURBED", float("inf"))  # how busy this machine is matters not

    def run(*arguments: str) -> tuple[list[str], str]:
        monkeypatch.setattr(sys, "argv", [
            "compare_drafters.py", str(folder), "--model", str(model), "--novel", str(document),
            "--context", "90", "--new-tokens", "8", "--workloads", "novel", *arguments,
        ])  # fmt: skip
        assert example.main() == 0
        captured = capsys.readouterr()
        return captured.out.splitlines(), captured.err

    lines, _ = run("--quick")
    names = [line.split(" | ")[0].split(",")[0] for line in lines[2:]]
    assert names == ["| snapkv 256", "| streaming 256", "| lookup"]
    path = folder / "novel.jsonl"
    cells = {cell.key.way: cell for cell in read_profile(path).cells}
    row = dict(zip(lines[0].split(" | "), lines[2].split(" | "), strict=True))
    assert row["speedup B 4"] == f"{cells['snapkv 256'].speedup:.2f}"
    assert row["acceptance"] == f"{cells['snapkv 256'].acceptance_rate:.3f}"
    assert row["lossless |"] == "yes |"

    before = path.read_bytes()
    assert run("--quick")[0] == lines and path.read_bytes() == before
    again, said = run("--minutes", "0")
    assert again == lines and "the time is over" in said


def test_what_this_version_lacks_is_named(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "SELECTORS_WANTED", ("snapkv", "clairvoyant"))
    found = list(example.parts({"novel": "n", "qa": "q"}, quick=False))
    assert "clairvoyant" in capsys.readouterr().err
    assert not any("clairvoyant" in grid for part in found for grid in part.grids)
    assert [part.batch for part in found[:4]] == [4] * 4, "every workload at one batch first"
    assert {part.batch for part in found} == {1, 4, 8}
