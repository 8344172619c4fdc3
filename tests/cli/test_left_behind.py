"""What a process that was killed leaves behind is gone after a later one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from magicdec.engine.cache.listing import clear_models
from magicdec.engine.cache.prefill_files import PrefillFiles
from magicdec.engine.loading.converted_cache import ensure, models_folder
from magicdec.profiles.files.files import replacing

DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
REPLACE = f"""
from pathlib import Path
from magicdec.profiles.files.files import replacing
with replacing(Path("out.csv")) as made:
    made.write_text("half")
    {DIE}
"""
BUILD = f"""
from magicdec.engine.loading.converted_cache import ensure, models_folder
def build(folder):
    (folder / "weights").write_text("half")
    {DIE}
ensure(models_folder() / "mine", dict(a=1), build, print)
"""
STORE = f"""
from magicdec.engine.cache import prefill_files
files = prefill_files.PrefillFiles("ab", 2**20)
def die(*given):
    {DIE}
with files.writing(dict()):
    prefill_files._write_all = die
    files.write("ab" * 16, [memoryview(b"data")])
"""


@pytest.fixture
def killed(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def run(code: str) -> None:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr

    return run


def test_a_file_that_was_being_written(killed, tmp_path):
    killed(REPLACE)
    (left,) = tmp_path.glob(".magicdec-*")
    with replacing(Path("other.csv")) as made:
        assert not left.exists()
        with replacing(Path("out.csv")) as second:  # at the same time: each keeps its own
            second.write_text("b")
        made.write_text("a")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["cache", "other.csv", "out.csv"]
    assert Path("other.csv").read_text() == "a" and Path("out.csv").read_text() == "b"


def test_a_model_that_was_being_converted(killed):
    killed(BUILD)
    assert len(list(models_folder().glob(".mine.tmp*"))) == 1
    ensure(models_folder() / "mine", dict(a=1), lambda folder: (folder / "weights").touch(), print)
    assert [path.name for path in models_folder().iterdir() if path.is_dir()] == ["mine"]


def test_a_model_that_nobody_wants_any_more(killed):
    killed(BUILD)
    assert clear_models() == 4  # bytes
    assert not any(path.is_dir() for path in models_folder().iterdir())


def test_a_prefill_that_was_being_stored(killed):
    killed(STORE)
    files = PrefillFiles("ab", 2**20)
    assert len(list(files.folder.glob(".tmp-*"))) == 1
    with files.writing({}):
        files.make_room(4, keep=[])
        files.write("cd" * 16, [memoryview(b"data")])
    assert sorted(path.name for path in files.folder.iterdir()) == ["about.json", f"{'cd' * 16}.kv"]
