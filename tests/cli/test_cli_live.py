"""The live display: it fits, it says the truth, it costs little."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from magicdec.cli.output.console import ASCII, Symbols, make_console, printable
from magicdec.cli.output.live import LiveDisplay
from magicdec.cli.output.live_layout import draw
from magicdec.cli.output.live_state import PLAIN, SPECULATIVE, LiveState, RunInfo
from magicdec.cli.output.numbers import bar, clock, rate, ratio_text
from magicdec.cli.output.progress import Lines
from magicdec.cli.output.row_text import ACCEPTED_STYLE, TARGET_STYLE, RowText
from magicdec.engine.events import (
    Event,
    PhaseTimes,
    PrefillProgress,
    RowFinished,
    RowStarted,
    RowStep,
    RunFinished,
    StepFinished,
)
from magicdec.engine.report import Recorder

STEP = PhaseTimes(draft=0.02, verify=0.05, commit=0.001, other=0.001)


def state(rows: int = 4, gamma: int = 3, title: str = SPECULATIVE) -> LiveState:
    info = RunInfo(
        "a-model-with-quite-a-long-name-q4_k_m.gguf", "cuda", "bfloat16", "snapkv", rows, 123_456,
        256, gamma, 0.0, rows, 64,
    )  # fmt: skip
    return LiveState(info, title, Recorder())


def feed(live: LiveState, *events: Event) -> LiveState:
    for event in events:
        live.recorder.add(event)
        live.add(event)
    return live


def prefill(done: int, reused: int = 0, seconds: float = 1.0) -> PrefillProgress:
    return PrefillProgress(0, done, 4000, done, 8000, reused, seconds)


def running(rows: int = 4, gamma: int = 3, text: str = "some wörds and 漢字 ") -> LiveState:
    live = state(rows, gamma)
    feed(live, prefill(8000))
    for row in range(rows):
        feed(live, RowStarted(row, "doc", 4000, 1, "First "))
    for step in range(12):
        shares = tuple(
            RowStep(row, (1,) * (gamma + 1), text, gamma, (row + step) % (gamma + 1), 5)
            for row in range(rows)
        )
        feed(live, StepFinished(step, gamma, shares, STEP))
    feed(live, RowFinished(0, "eos", (1, 2), "done"))
    return live


def lines(live: LiveState, width: int, height: int, symbols: Symbols | None = None) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(draw(live, 61.0, width, height, symbols or Symbols()))
    return captured.get().splitlines()


@pytest.mark.parametrize("rows", [1, 4, 33])
@pytest.mark.parametrize("gamma", [0, 1, 5, 32])
@pytest.mark.parametrize(
    ("width", "height"), [(80, 23), (120, 39), (200, 49), (56, 14), (60, 15), (40, 10), (20, 3)]
)
def test_it_fits_every_terminal(rows: int, gamma: int, width: int, height: int) -> None:
    from rich.cells import cell_len

    drawn = lines(running(rows, gamma), width, height)
    assert 1 <= len(drawn) <= height
    assert max(cell_len(line) for line in drawn) <= width


def test_80_columns_show_everything_that_matters() -> None:
    text = "\n".join(lines(running(), 80, 23))
    for expected in (
        "cuda", "snapkv", "B 4", "context 123,456", "budget 256", "γ 3", "T greedy", "speculative",
        "1:01", "now", "mean length", "draft", "verify", "tokens/s", "1/4 rows", "✓eos",
        "accepted from the draft", "drawn by the target",
    ):  # fmt: skip
        assert expected in text, expected


def test_positions_that_do_not_fit_are_listed() -> None:
    text = "\n".join(lines(running(gamma=12), 80, 23))
    assert "+" in text.split("mean length")[1]


@pytest.mark.parametrize("color", ["auto", "always", "never"])
@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("00", 80), ("", 80), ("40", 40)])
def test_no_columns_are_none_said(
    color: Any, columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    console = make_console(io.StringIO(), color)
    assert (console.width, console.size.height) == (width, 40 if width == 40 else 25)


def test_ascii_terminals_get_ascii() -> None:
    "\n".join(lines(running(text="plain words "), 100, 30, ASCII)).encode("ascii")


def test_prefill_shows_rate_and_time_left() -> None:
    live = feed(state(), prefill(3000, reused=1000, seconds=2.0))
    text = "\n".join(lines(live, 80, 23))
    assert "3,000 of 8,000 tokens" in text and "1,000 of them copied" in text
    assert "1,000 tokens/s" in text and "at most 0:05 left" in text


def test_plain_decoding_shows_no_acceptance() -> None:
    live = feed(
        state(title=PLAIN),
        RowStarted(0, "doc", 10, 1, "a"),
        StepFinished(0, 0, (RowStep(0, (2,), " b", 0, 0),), PhaseTimes(verify=0.05)),
    )
    text = "\n".join(lines(live, 80, 23))
    assert "nothing to accept" in " ".join(text.replace("│", " ").split())
    assert "mean length" not in text and "accepted from the draft" not in text


def test_without_origins_nothing_is_claimed_about_them() -> None:
    live = feed(
        state(),
        RowStarted(0, "doc", 10, 1, "a"),
        StepFinished(0, 3, (RowStep(0, (2, 3), " b c", 3, 1),), STEP),
    )
    assert "accepted from the draft" not in "\n".join(lines(live, 80, 23))


def test_the_baseline_is_shown_beside() -> None:
    live = running()
    plain = Recorder()
    for event in (
        RowStarted(0, "doc", 10, 1, "a"),
        StepFinished(0, 0, (RowStep(0, (2,), " b", 0, 0),), PhaseTimes(verify=1.0)),
    ):
        plain.add(event)
    live.baseline = plain.tally()
    assert "× plain" in "\n".join(lines(live, 80, 23))


def test_row_text_keeps_the_origin_of_every_character() -> None:
    text = RowText()
    text.add("Zero ", None)
    text.add("one two three ", 8)  # "one two " is the draft's
    (line,) = text.lines(40, 3)
    assert line.plain == "Zero one two three"
    styles = {line.plain[span.start : span.end]: span.style for span in line.spans}
    assert styles["one two "] == ACCEPTED_STYLE and styles["three"] == TARGET_STYLE


@pytest.mark.parametrize("width", [1, 2, 7, 20, 80])
def test_row_text_loses_nothing_and_fits(width: int) -> None:
    text = RowText()
    words = "a word 漢字漢字 and\n\n a-very-long-unbroken-word-indeed\tthen more  "
    for _ in range(3):
        text.add(words, 4)
    shown = text.lines(width, 10_000)
    assert all(line.cell_len <= max(width, 2) for line in shown)
    joined = "".join(line.plain for line in shown).replace(" ", "")
    assert joined == "".join((words * 3).split())


def test_row_text_wraps_the_same_while_it_grows_long() -> None:
    short, long = RowText(), RowText()
    for step in range(3000):
        long.add(f"word{step} ", 3)
        long.lines(50, 4)
        if step >= 2900:
            short.add(f"word{step} ", 3)
    assert long.lines(50, 4)[-1].plain.endswith("word2999")
    assert all(line.cell_len <= 50 for line in long.lines(50, 4))
    assert len(long._text) < 10_000


def test_model_output_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\x9b\r\n\tc") == "a\ufffd[2Jb\ufffd\ufffd\ufffd\n\tc"
    text = RowText()
    text.add("x\x1b]0;title\x07y", 0)
    assert "\x1b" not in text.lines(80, 1)[0].plain


def test_frames_take_at_most_two_percent_of_the_time() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    now = 0.0
    drawn: list[float] = []

    def tick() -> float:
        return now

    display = LiveDisplay(console, tick)
    draw_once = display._draw

    def slow_draw() -> object:
        nonlocal now
        drawn.append(now)
        now += 0.05  # a slow terminal
        return draw_once()

    display._draw = slow_draw  # type: ignore[method-assign, assignment]
    live = running()
    display.begin(live)
    event = StepFinished(99, 3, (), STEP)
    while now < 20.0:
        now += 0.01
        display.event(event)
    display.close()
    assert 0.05 * len(drawn) <= 0.025 * now
    assert len(drawn) >= 7


def test_the_last_frame_is_always_drawn() -> None:
    out = io.StringIO()
    display = LiveDisplay(Console(file=out, force_terminal=True, width=80, height=24), lambda: 0.0)
    live = running()
    display.begin(live)
    size = len(out.getvalue())
    display.event(StepFinished(13, 3, (), STEP))
    assert len(out.getvalue()) == size, "too soon for another frame"
    display.event(RunFinished(STEP, 300.0))
    assert len(out.getvalue()) > size
    display.close()


def test_lines_for_logs_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    display = Lines(lambda: now)
    display.loading("loading weights", 0.0)
    display.loading("loading weights", 0.5)
    live = state()
    display.begin(live)
    for second in range(25):
        now += 1.0
        event = prefill(100 * second + 100, seconds=now)
        feed(live, event)
        display.event(event)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "loading weights" and said[1].startswith("speculative: 4 rows")
    assert len(said) == 4 and said[2] == "prefill: 1,000 of 8,000 tokens, 100 tokens/s, " \
        "at most 1:10 left"  # fmt: skip


def test_bars_have_a_fixed_scale() -> None:
    assert bar(0.0, 10, "", Symbols()).plain == "░" * 10
    assert bar(1.0, 10, "", Symbols()).plain == "█" * 10
    assert bar(0.5, 10, "", Symbols()).plain == "█████░░░░░"
    assert bar(0.5, 10, "", ASCII).plain == "#####....."
    for share in (-1.0, 0.001, 0.333, 0.999, 2.0):
        assert len(bar(share, 7, "", Symbols()).plain) == 7


def test_numbers_as_text() -> None:
    assert [rate(value) for value in (None, 0.0, 0.534, 0.999, 1.0)] == [
        "-", ".00", ".53", "1.00", "1.00",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0.0, 61.9, 3723.0)] == ["0:00", "1:01", "1:02:03"]
    assert [ratio_text(ratio, Symbols()).plain for ratio in (0.5, 0.999, 1.0049, 1.5)] == [
        "▼ 0.50×", "= 1.00×", "= 1.00×", "▲ 1.50×",
    ]  # fmt: skip
