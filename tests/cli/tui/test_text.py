"""The text panel's marks: what was rejected, where it comes from and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from magicdec.cli.output.console import ASCII, Symbols
from magicdec.cli.output.live_state import RowState
from magicdec.cli.tui.panels.text import REJECTED_STYLE, row_lines
from magicdec.cli.tui.process.worker import MOST_ROWS, Rejections
from magicdec.engine.events import PhaseTimes, RowStarted, RowStep, StepFinished


def spelled(before: int, tokens: Sequence[int]) -> str:
    return f"{before}>{','.join(map(str, tokens))}"


def step(*rows: RowStep) -> StepFinished:
    return StepFinished(1, 3, rows, PhaseTimes())


def test_rejected_tokens_are_spelled_after_the_last_accepted_one() -> None:
    rejections = Rejections(spelled)
    assert rejections.of(RowStarted(0, "doc", 5, 7, "")) == ()
    assert rejections.of(RowStarted(1, "doc", 5, 8, "")) == ()
    first = step(
        RowStep(0, (10, 11, 12), "", 3, 2, 0, rejected=(90,)),
        RowStep(1, (20,), "", 2, 0, 0, rejected=(91, 92)),
    )
    assert rejections.of(first) == ((0, "11>90"), (1, "8>91,92"))
    second = step(RowStep(0, (13,), "", 1, 0, 0, rejected=(93,)), RowStep(1, (21, 22), "", 1, 1))
    assert rejections.of(second) == ((0, "12>93"),)


def test_rows_that_no_screen_shows_are_not_spelled() -> None:
    rejections = Rejections(spelled)
    for row in range(MOST_ROWS + 1):
        rejections.of(RowStarted(row, "doc", 5, row, ""))
    shares = [RowStep(row, (1,), "", 1, 0, 0, rejected=(2,)) for row in range(MOST_ROWS + 1)]
    assert [row for row, _ in rejections.of(step(*shares))] == list(range(MOST_ROWS))


def row_of(text: str, rejected: str) -> RowState:
    row = RowState(rejected=rejected)
    row.text.add(text, 0)
    return row


def test_the_rejected_follow_the_text_struck_out_and_behind_a_mark() -> None:
    (line,) = row_lines(row_of("the cat sat", " on\nit"), 40, 1, Symbols())
    assert line.plain == "the cat sat ✗ on it"
    struck = [line.plain[s.start : s.end] for s in line.spans if s.style == REJECTED_STYLE]
    assert struck == ["on it"]
    (line,) = row_lines(row_of("the cat sat", " on"), 40, 1, ASCII)
    assert line.plain == "the cat sat x on"


def test_a_row_that_has_ended_shows_its_text_alone() -> None:
    row = row_of("the cat sat", " on")
    row.finish_reason = "length"
    assert [line.plain for line in row_lines(row, 40, 1, Symbols())] == ["the cat sat"]


@given(st.text(max_size=80), st.text(max_size=40), st.integers(1, 50), st.integers(1, 4))
def test_marks_never_take_more_room_than_there_is(
    text: str, rejected: str, width: int, room: int
) -> None:
    lines = row_lines(row_of(text, rejected), width, room, Symbols())
    assert 1 <= len(lines) <= room
    assert all(line.cell_len <= max(width, 2) for line in lines)
