"""`magicdec profile record`: a whole sweep, what its file holds, and who reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.profiles.recorded.encode import header_to_json
from magicdec.profiles.recorded.header import Header
from magicdec.profiles.recorded.reader import read_profile

Record = Callable[..., int]


def test_every_number_of_a_recorded_sweep_follows_from_the_runs(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path)) == 0, capsys.readouterr().err
    profile = read_profile(path)
    assert not profile.warnings
    header = profile.header
    assert header.max_new_tokens == 12 and header.grid.context == (60, 90)
    assert [source.name for source in header.documents] == ["doc.txt"]
    assert header.environment["threads"] and header.dtype == "float32"
    assert {(c.key.context, c.key.gamma) for c in profile.cells} == {
        (60, 1), (60, 3), (90, 1), (90, 3)
    }  # fmt: skip
    for cell in profile.cells:
        assert cell.status == "ok" and len(cell.repeats) == 2
        assert cell.key.batch == 2 and cell.key.budget == 40
        for repeat in cell.repeats:
            plain, spec = repeat.plain, repeat.speculative
            assert plain is not None
            # The first token of each of the two rows comes from the prefill.
            assert plain.tokens == spec.tokens == 2 * 11
            assert plain.steps == 11 and plain.num_spec_steps is None
            for sample in (plain, spec):
                assert sample.seconds == pytest.approx(sample.phases.decode) and sample.seconds > 0
            assert plain.phases.draft == plain.phases.select == 0
            assert spec.phases.draft > 0 and spec.phases.verify > 0
        assert sum(cell.accepted_per_step) == cell.num_spec_steps == cell.drafted_per_position[0]
        emitted = sum(repeat.speculative.tokens for repeat in cell.repeats)
        undrafted = emitted - cell.num_spec_steps - cell.num_accepted_draft_tokens
        # A row's last step drafts nothing when one token is left: at most one a row and pass.
        assert 0 <= undrafted <= 4
        assert len(cell.drafted_per_position) <= cell.key.gamma
        assert cell.speedup is not None and cell.speedup > 0
        for seconds in (cell.step.plain, cell.step.draft, cell.step.verify):
            assert seconds is not None and 0 < seconds < 60
        assert cell.lossless.checked and cell.lossless.ok
        assert cell.peak_memory_bytes is None or cell.peak_memory_bytes > 2**20
        assert cell.predicted is None, "no calibration here"
        assert cell.speedup_end_to_end is None, "the prefill was reused"
        assert repeat.speedup_end_to_end is None
    assert run_command_line(["profile", "show", str(path), "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cells"]) == 4
    assert run_command_line(["profile", "show", str(path)]) == 0
    assert "speedup" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("nowhere/x.jsonl", "there is no folder 'nowhere'; create it"),
        (".", "is a folder; give another file"),
        ("doc.txt", "is what this command reads; give another file"),
        ("letter.txt", "letter.txt, line 1 is damaged: Expecting value; give another file"),
        ("bad.jsonl", "line 2 is damaged: Expecting value; delete that line; or give another file"),
        ("pipe", "is a pipe, and has to be read again; give another file"),
        ("/dev/null", "is a device, and has to be read again; give another file"),
        ("dangling", "nowhere'; create it"),
        ("mine.json", "its schema is 'magicdec.profile/mine', a profile's is magicdec.profile/2"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_model_is_opened(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    output: str, said: str,
) -> None:  # fmt: skip
    begun = Header(
        created="", tool="", environment={}, model="m", dtype="", kv_dtype="", documents=()
    )
    Path("bad.jsonl").write_text(f"{json.dumps(header_to_json(begun))}\nnonsense\n{{}}\n")
    Path("letter.txt").write_text("Dear Sir")
    Path("dangling").symlink_to("nowhere/x.jsonl")
    Path("mine.json").write_text('{"schema":"magicdec.profile/mine"}')
    os.mkfifo("pipe")
    monkeypatch.setattr("magicdec.cli.session_api.open_engine", lambda *given: pytest.fail("open"))
    assert record("-o", output) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line and "same command" not in line


def test_a_sweep_whose_output_has_a_nul_is_refused_like_any_other(
    model: Path, document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.toml").write_text('output = "a\\u0000b"\ncontext = 60\n')
    sweep = ["profile", "record", str(document), "--model", str(model), "--sweep", "sweep.toml"]
    assert run_command_line(sweep) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("--output 'a\\x00b' has a NUL in it; give another name")


def test_an_interrupt_before_there_is_a_file_promises_nothing(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("magicdec.cli.session_api.open_engine", interrupt)
    assert record("-o", str(tmp_path / "never.jsonl")) == 130
    assert capsys.readouterr().err.endswith("interrupted: nothing was measured\n")


def test_plain_and_speculative_passes_take_turns(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that slows down must not make the later cells look slow beside old plain runs."""
    from magicdec.engine.session import Session

    passes: list[tuple[int, int]] = []
    run = Session.run

    def spying(self, requests, config, **options):  # type: ignore[no-untyped-def]
        passes.append((config.gamma, config.max_new_tokens))
        yield from run(self, requests, config, **options)

    monkeypatch.setattr(Session, "run", spying)
    assert record("-o", str(tmp_path / "a.jsonl"), "--context", "60") == 0
    measured = [gamma for gamma, tokens in passes if tokens == 12]
    assert measured == [0, 1, 0, 1, 0, 3, 0, 3]
    assert {gamma for gamma, tokens in passes if tokens < 12} == {0, 1, 3}, "each was warmed up"


def test_a_sweep_beside_other_programs_says_so(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from magicdec.profiles.machine.other_programs import OthersLoad

    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_OTHERS", 0.1)
    monkeypatch.setattr(OthersLoad, "share", property(lambda self: 0.48))
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path)) == 0
    assert "other programs took 48% of the CPUs" in capsys.readouterr().err
    profile = read_profile(path)
    assert "other programs took 48% of the CPUs" in profile.warnings[0]
    assert all(cell.disturbed and cell.others == 0.48 for cell in profile.cells)


def test_what_the_session_has_to_say_is_said(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Kernels that cannot be kept make every cell slower; prefills that cannot, the next sweep."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "file"))
    grid = ("--context", "60", "--gamma", "1", "--budget", "40", "--max-new-tokens", "4")
    assert record("-o", str(tmp_path / "sweep.jsonl"), grid=grid) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "slower sdpa" in line and "Not a directory" in line]
    assert len([line for line in said if "prefills could not be stored" in line]) == 1
    assert not any("make room" in line for line in said)  # the disk is not full
