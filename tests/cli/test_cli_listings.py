"""selectors, models, terms and doctor in every format."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.output import terms
from magicdec.engine.errors import ModelError
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import KVSelector


@dataclass
class Sparse(KVSelector):
    """Keeps a few positions.

    More about it.
    """

    sinks: int = 4
    shape: str = "a|b"

    def select(self, keys: object, queries: object, budget: int) -> object:  # type: ignore[override]
        raise AssertionError("listing and checking a selector must not run it")


@pytest.fixture
def two_selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> type[KVSelector]:
        if name == "broken":
            raise ImportError("no module named 'gone'")
        return Sparse

    monkeypatch.setattr(SELECTORS, "names", lambda: ["sparse", "broken"])
    monkeypatch.setattr(SELECTORS, "load", load)


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command_line(arguments) == 0
    return capsys.readouterr().out


def test_selectors_with_options_and_a_broken_plugin(
    two_selectors: None, capsys: pytest.CaptureFixture[str]
) -> None:
    sparse, broken = json.loads(output(capsys, "selectors", "--format", "json"))
    assert sparse == {
        "name": "sparse", "keeps": "Keeps a few positions.", "search": {},
        "options": ["sinks: int = 4", "shape: str = 'a|b'"],
    }  # fmt: skip
    assert broken["keeps"] == "cannot be loaded: ImportError: no module named 'gone'"


def test_the_other_formats(two_selectors: None, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(output(capsys, "selectors", "--format", "csv"))))
    assert rows[0]["options"] == "sinks: int = 4, shape: str = 'a|b'"
    markdown = output(capsys, "selectors", "--format", "md").splitlines()
    assert markdown[0] == "| name | keeps | search | options |"
    assert markdown[1] == "| --- | --- | --- | --- |"
    assert r"'a\|b'" in markdown[2]
    table = output(capsys, "selectors")
    assert "Keeps a few positions." in table and "\x1b" not in table


def test_drafters_are_listed_with_what_they_take(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output(capsys, "drafters", "--format", "json"))
    names = ["self", "lookup", "layers:N", "lookup+self", "layers:N+self", "MODEL", "MODEL+self"]
    assert [row["name"] for row in rows] == names
    assert all(row["lossless"] == "yes" and row["needs"] for row in rows)
    takes = {row["name"]: row["takes"] for row in rows}
    for row in rows:
        assert ("a selector that chooses once" in row["needs"]) == row["name"].endswith("+self")
    assert "--budget" in takes["layers:N"] and "--budget" not in takes["lookup"]


def test_installed_selectors_can_all_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output(capsys, "selectors", "--format", "json"))
    assert not any(row["keeps"].startswith("cannot be loaded") for row in rows)
    search = {row["name"]: row["search"] for row in rows}
    assert search["window"] == {} and search["snapkv"] == {"once": 0.5}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(alias: str, progress: object) -> Path:
        if alias != "tiny":
            raise ModelError(f"no model is called {alias!r}; choose from tiny, large")
        return Path("/cache/tiny")

    def info(alias: str, path: Path | None) -> SimpleNamespace:
        return SimpleNamespace(
            alias=alias, description="A model.", licence="Apache-2.0", source="somewhere",
            parameters=134_515_008, cached=path, bytes_on_disk=538_202_080,
        )  # fmt: skip

    module = ModuleType("magicdec.engine.loading.aliases")
    module.list_models = lambda: [info("tiny", Path("/cache/tiny")), info("large", None)]  # type: ignore[attr-defined]
    module.pull, module.import_converter = pull, lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("magicdec.engine.loading.aliases", module, raising=False)


def test_models_list(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    tiny, large = json.loads(output(capsys, "models", "list", "--format", "json"))
    assert (tiny["parameters"], tiny["on disk"], tiny["path"]) == (
        134_515_008, 538_202_080, "/cache/tiny",
    )  # fmt: skip
    assert large["path"] is None
    markdown = output(capsys, "models", "list", "--format", "md")
    assert (
        "| tiny | 135 M | Apache-2.0 | 538 MB | A model. |" in markdown and "not pulled" in markdown
    )


def test_models_pull(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "models", "pull", "tiny") == "/cache/tiny\n"
    assert run_command_line(["models", "pull", "huge"]) == 3
    captured = capsys.readouterr()
    assert captured.out == "" and "choose from tiny, large" in captured.err


def test_doctor_says_what_is_wrong_with_a_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "magicdec.toml").write_text("gamma = ")
    monkeypatch.chdir(tmp_path)
    rows = json.loads(output(capsys, "doctor", "--format", "json"))
    said = [row["value"] for row in rows if row["what"] == "config"]
    assert said[0].startswith("magicdec.toml: not valid TOML")


def test_doctor_names_what_would_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        row["what"]: row["value"]
        for row in json.loads(output(capsys, "doctor", "--format", "json"))
    }
    assert {"magicdec", "torch", "python", "device", "threads", "cores", "memory", "cache"} <= set(
        found
    )
    assert found["compiler"]
    assert found["device"].startswith(("cpu", "cuda"))


def test_terms_by_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "terms", "TPOT", "--format", "json"))
    assert found and all("tpot" in row["term"].casefold() for row in found)
    inside = json.loads(output(capsys, "terms", "Welch", "--format", "json"))
    assert [row["term"] for row in inside] == ["p"], (
        "where no term has it, definitions are searched"
    )
    assert run_command_line(["terms", "nobody"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no term has 'nobody' in it" in line


def test_a_term_has_one_meaning() -> None:
    tables = [value for name, value in vars(terms).items() if name.endswith("_TERMS")]
    assert len(tables) == 6
    assert sum(map(len, tables)) == len(terms.TERMS)
