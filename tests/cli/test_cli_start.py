"""What the command line costs before it does anything, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from magicdec.cli import interrupts, session_api
from magicdec.cli.settings.knobs import Settings

HEAVY = ("torch", "transformers", "textual", "numpy", "msgspec")
PROBE = """
import json, sys
from magicdec.cli.main import run_command_line
code = run_command_line(sys.argv[1:])
print(json.dumps([code, [name for name in {heavy!r} if name in sys.modules]]), file=sys.stderr)
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magicdec.cli", *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["selectors"],
        ["drafters"],
        ["config", "show"],
        ["terms"],
        ["cache", "list"],
        ["run", "no-such-file.txt", "--selector", "nobody"],
    ],
    ids=" ".join,
)
def test_a_cheap_command_imports_nothing_heavy(arguments: list[str]) -> None:
    probe = [sys.executable, "-c", PROBE.format(heavy=HEAVY), *arguments]
    result = subprocess.run(probe, capture_output=True, text=True)
    _, imported = json.loads(result.stderr.splitlines()[-1])
    assert imported == []


def test_help_goes_to_stdout_and_names_every_command() -> None:
    result = command("--help")
    assert result.returncode == 0 and result.stderr == ""
    for name in (
        "run",
        "tune",
        "predict",
        "selectors",
        "drafters",
        "models",
        "cache",
        "config",
        "terms",
        "doctor",
    ):
        assert f"\n  {name} " in result.stdout


def test_version() -> None:
    result = command("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("magicdec 0.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--gama", "3", "x"], "--gamma"),
        (["nonsense"], "nonsense"),
        (["models", "pull"], "ALIAS"),
        (["selectors", "--format", "yaml"], "yaml"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(arguments: list[str], said: str) -> None:
    result = command(*arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_a_group_without_a_command_shows_its_help() -> None:
    result = command("models")
    assert result.returncode == 2
    assert result.stderr.startswith("Usage: magicdec models")


def test_a_closed_pipe_is_no_error_message() -> None:
    shell = f"{sys.executable} -m magicdec.cli terms --format csv | head -n 1"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert result.stdout == "term,definition\n" and result.stderr == ""


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_ctrl_c_while_starting_is_one_line_whatever_is_half_imported(sent: str) -> None:
    code = (
        "import os, signal, sys; from magicdec.cli import interrupts; interrupts.exit_at_once()\n"
        "assert 'typer' not in sys.modules, 'nothing slow comes before the handler'\n"
        "interrupts.before_exit(lambda: print('display closed', flush=True))\n"
        f"try:\n    os.kill(os.getpid(), signal.{sent})\n"
        "except BaseException:\n    pass\n"
        "print('went on')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, "interrupted\n")
    assert result.stdout == "display closed\n"


def test_once_the_engine_is_imported_ctrl_c_is_an_exception(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, signals: None
) -> None:
    document = tmp_path / "doc.txt"
    document.write_text("text")
    during: list[object] = []

    def opened(*arguments: object, **settings: object) -> SimpleNamespace:
        during.append(signal.getsignal(signal.SIGINT))
        return SimpleNamespace(spec=SimpleNamespace(vocab_size=9))

    monkeypatch.setattr("magicdec.engine.session.open_session", opened)
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    session_api.open_session([str(document)], Settings(), lambda what, share: None)
    assert during == [interrupts._interrupt]


def test_an_ignored_ctrl_c_stays_ignored(signals: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.exit_at_once()
    interrupts.raise_again()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is interrupts._interrupt


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("run - <&-", 2, "standard input is closed; give a file"),
        ("terms >&-", 1, "cannot write to standard output: it is closed"),
        ("terms >/dev/full", 1, "cannot write to standard output: No space left on device"),
        ("run ''", 2, "a document name is empty"),
    ],
)
def test_unusable_streams_and_names_are_one_line(line: str, code: int, said: str) -> None:
    shell = f"{sys.executable} -m magicdec.cli {line}"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert result.returncode == code
    assert said in result.stderr and "-v shows" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_writes_nothing_to_stdout_does_not_need_it(tmp_path: Path) -> None:
    """And no file that it opens gets the number of the closed one."""
    text = f"exec {sys.executable} -m magicdec.cli"
    predict = "predict --hardware H100 --model llama-3.1-8b --alpha .8 --format csv"
    done = subprocess.run(
        f"{text} {predict} -o cells.csv >&-", shell=True, cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "cells.csv").read_text().startswith("model,hardware,draft,batch")
    done = subprocess.run(
        f"{text} profile record none.txt -o p.jsonl --context 9 >&-",
        shell=True, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "there is no file 'none.txt'" in done.stderr
    done = subprocess.run(
        f"{text} run none.txt >&-", shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "standard output: it is closed" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_greek_letters_are_written_by_name_where_the_encoding_lacks_them(encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"}
    pages = ["terms", "--help", "run --help", "tune --help", "predict --help"]
    pages += [f"profile {name} --help" for name in ("record", "survey")]
    for page in pages:
        done = subprocess.run(
            [sys.executable, "-m", "magicdec.cli", *page.split()], capture_output=True, env=env
        )
        text = done.stdout.decode(encoding)
        assert done.returncode == 0 and "?" not in text and "gamma" in text
        wide = [line for line in text.splitlines() if len(line) > 80]
        assert not wide, "laid out with the names in it"


def test_a_signal_while_python_ends_has_no_exit_code_of_its_own() -> None:
    """Python gives signals back to the system last, when nothing of ours can answer."""
    code = """
import atexit, signal, sys
sent = (signal.SIGINT, signal.SIGTERM)
last = lambda: print([signal.getsignal(n) is signal.SIG_IGN for n in sent])
atexit.register(last)  # registered before, so called after
from magicdec.cli import interrupts
interrupts.exit_at_once()
interrupts.raise_again()
interrupts.leave(130)
sys.exit(130)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "[True, True]\n"), done.stderr
