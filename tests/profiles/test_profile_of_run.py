"""What `run --compare --json` wrote is a profile of one cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import Entry
from magicdec.profiles.files.gamma_schedule import schedule_text
from magicdec.profiles.recorded.decode import cell_from_json
from magicdec.profiles.recorded.encode import cell_to_json
from magicdec.profiles.recorded.reader import read_profile

FAKE = Path(__file__).parents[1] / "fake_session.py"


def run(folder: Path, *arguments: str, scene: str = "") -> Path:
    (folder / "doc.txt").write_text("Some long document.")
    command = [sys.executable, str(FAKE), "run", "doc.txt", "--json", "-q", *arguments]
    env = {**os.environ, "FAKE_SCENE": scene, "MAGICDEC_CACHE_DIR": str(folder)}
    done = subprocess.run(command, cwd=folder, capture_output=True, env=env)
    path = folder / "run.json"
    path.write_bytes(done.stdout)
    return path


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("run"), "--compare", "--batch", "2", "--gamma", "3",
               "--context", "500", "--max-new-tokens", "30")  # fmt: skip


def test_its_figures_are_the_runs(compared):
    document = json.loads(compared.read_text())
    profile = read_profile(compared)
    (cell,) = profile.cells
    assert (cell.key.batch, cell.key.context, cell.key.gamma) == (2, 500, 3)
    assert cell.speedup == pytest.approx(document["speedup"]["decode"])
    assert cell.speedup_end_to_end == pytest.approx(document["speedup"]["end_to_end"])
    spec = document["speculative_decoding"]
    assert list(cell.acceptance_rate_per_position) == spec["acceptance_rate_per_position"]
    assert cell.tokens_per_s == pytest.approx(document["decode"]["tokens_per_s"])
    assert cell.lossless.ok is True
    assert [source.name for source in profile.header.documents] == ["doc.txt"]


def test_all_commands_take_it(compared, magicdec):
    assert "1 cell" in magicdec("profile", "show", compared)[1]
    code, out, _ = magicdec("profile", "compare", compared, compared)
    assert code == 0 and "untested, one repeat" in out
    code, out, err = magicdec("profile", "export", compared, "--to", "aiconfigurator",
                              "--gamma", 3)  # fmt: skip
    assert code == 0 and out.startswith("--nextn 3"), err


def test_an_interrupted_run_is_a_failed_cell(tmp_path):
    (cell,) = read_profile(run(tmp_path, "--compare", scene="interrupt")).cells
    assert (cell.status, cell.error) == ("failed", "interrupted")


def test_a_run_without_comparison_has_no_speedup(tmp_path):
    (cell,) = read_profile(run(tmp_path)).cells
    assert cell.speedup is None and cell.plain_tokens_per_s is None
    assert cell.tokens_per_s and not cell.lossless.checked


@pytest.mark.parametrize("policy", ["adaptive", "plan.toml"])
def test_a_gamma_that_changes_is_named(tmp_path, magicdec, policy):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plan.toml").write_text(schedule_text([Entry(1, 1, 4)]))
    given = policy if policy == "adaptive" else f"mine/{policy}"
    path = run(tmp_path, "--compare", "--gamma", given, "--batch", "2")
    document = json.loads(path.read_text())
    (cell,) = read_profile(path).cells
    assert cell.key.gamma_policy == policy
    assert cell.key.gamma == document["gamma"]["most"] == (8 if policy == "adaptive" else 4)
    assert cell.mean_gamma == pytest.approx(document["gamma"]["mean"])
    assert cell.speedup == pytest.approx(document["speedup"]["decode"])
    out = magicdec("profile", "show", path)[1]
    assert f"{cell.mean_gamma:.1f} of {cell.key.gamma}" in out
    assert cell_from_json(cell_to_json(cell), "here") == cell


def test_plain_decoding_is_no_cell(tmp_path):
    with pytest.raises(ConfigError, match="does not speculate"):
        read_profile(run(tmp_path, "--gamma", "0"))


@pytest.mark.parametrize(
    "change",
    [
        {"env": None}, {"rows": []}, {"rows": [{}]}, {"config": {"gamma": "x"}}, {"decode": []},
        {"phases_s": {"draft": -1}}, {"speculative_decoding": 3}, {"baseline": {"decode": 1}},
    ],
)  # fmt: skip
def test_damaged_documents_are_one_line(compared, tmp_path, change):
    document: dict[str, Any] = json.loads(compared.read_text()) | change
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document, indent=2))
    with pytest.raises(ConfigError) as caught:
        read_profile(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and "Error" not in message


def test_a_document_without_its_parts_says_which_and_what_to_do(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"schema":"magicdec.run/1"}')
    with pytest.raises(ConfigError, match=r"it has no 'env'; make it anew with `magicdec run"):
        read_profile(path)
