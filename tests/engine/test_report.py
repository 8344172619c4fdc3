"""The recorder's numbers, computed by hand for a small run."""

from __future__ import annotations

import pytest

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
from magicdec.engine.report import RECENT_STEPS, Recorder

STEP = PhaseTimes(draft=0.25, verify=0.5, other=0.25)
TOTAL = PhaseTimes(prefill=2.0, select=0.5, draft=0.75, verify=1.5, commit=0.0, other=0.75)


def prefill(seconds: float, done: int = 10) -> PrefillProgress:
    return PrefillProgress(0, done, 10, done, 10, 0, seconds)


def two_rows() -> list[Event]:
    """Row 0: 1 + 4 + 2 tokens. Row 1: 1 + 1 + 2 + 1 tokens, the last step without a draft."""
    return [
        prefill(0.5, done=5),
        prefill(2.0),
        RowStarted(0, "a.txt", 100, 1, "a"),
        RowStarted(1, "b.txt", 90, 2, "b"),
        StepFinished(
            0, 3, (RowStep(0, (3, 4, 5, 6), "cdef", 3, 3), RowStep(1, (7,), "g", 3, 0)), STEP
        ),
        # row 0 accepted 2 of 2 but was cut at its second token
        StepFinished(
            1, 2, (RowStep(0, (8, 9), "hi", 2, 2), RowStep(1, (10, 11), "jk", 2, 1)), STEP
        ),
        RowFinished(0, "length", (1, 3, 4, 5, 6, 8, 9), "acdefhi"),
        StepFinished(2, 0, (RowStep(1, (12,), "l", 0, 0),), STEP),
        RowFinished(1, "eos", (2, 7, 10, 11, 12), "bgjk"),
        RunFinished(TOTAL, 64.0),
    ]


def record(events: list[Event]) -> Recorder:
    recorder = Recorder()
    for event in events:
        recorder.add(event)
    return recorder


def test_complete_run() -> None:
    report = record(two_rows()).report()
    assert report.finished and report.steps == 3
    assert (report.num_spec_steps, report.num_draft_tokens) == (4, 10)
    assert report.num_accepted_draft_tokens == 6
    assert report.acceptance_rate == pytest.approx(0.6)
    assert report.num_spec_tokens == 9 and report.num_cut_draft_tokens == 0
    assert report.mean_acceptance_length == pytest.approx(9 / 4), "row 0 ended with a draft token"
    assert report.histogram == (1, 1, 1, 1)
    assert report.acceptance_rate_per_position == pytest.approx((3 / 4, 2 / 4, 1 / 2))
    assert report.drafted_per_position == (4, 4, 2), "the second step drafted two"
    assert report.accepted_per_position == (3, 2, 1)
    assert report.acceptance_rate_per_position_of_all == (3 / 4, 2 / 4, 1 / 4), "as vLLM has it"
    assert report.phases == TOTAL
    assert report.decode_tokens == 10
    assert report.decode_seconds == pytest.approx(3.5)
    assert report.tokens_per_s == pytest.approx(10 / 3.5)
    # row 0: 2 steps of 1 s for 6 tokens; row 1: 3 steps of 1 s for 4 tokens
    assert report.tpot_s == pytest.approx((2 / 6 + 3 / 4) / 2)
    assert report.draft_entries_read == 64.0


def test_rows_carry_their_own_counts_and_the_final_text() -> None:
    first, second = record(two_rows()).report().rows
    assert (first.document, first.prompt_tokens, first.finish_reason) == ("a.txt", 100, "length")
    assert (first.steps, first.drafted, first.accepted) == (2, 5, 5)
    assert second.text == "bgjk", "the text of RowFinished lacks the EOS and wins"
    assert second.token_ids == (2, 7, 10, 11, 12)
    assert (second.steps, second.drafted, second.accepted) == (3, 5, 1)


@pytest.mark.parametrize("cut", range(len(two_rows()) + 1))
def test_a_run_cut_anywhere_has_a_consistent_report(cut: int) -> None:
    report = record(two_rows()[:cut]).report()
    assert report.finished == (cut == len(two_rows()))
    assert sum(report.histogram) == report.num_spec_steps
    weighted = sum(accepted * steps for accepted, steps in enumerate(report.histogram))
    assert weighted == report.num_accepted_draft_tokens
    assert sum(report.drafted_per_position) == report.num_draft_tokens
    emitted = sum(len(row.token_ids) for row in report.rows)
    assert report.decode_tokens == emitted - len(report.rows)
    for row in report.rows:
        ended = any(
            isinstance(event, RowFinished) and event.row == row.row for event in two_rows()[:cut]
        )
        assert (row.finish_reason is not None) == ended


def test_phases_of_an_unfinished_run_are_what_was_seen() -> None:
    report = record(two_rows()[:6]).report()
    assert report.phases == PhaseTimes(prefill=2.0, draft=0.5, verify=1.0, other=0.5)
    assert report.rows[0].text == "acdefhi" and report.rows[0].finish_reason is None
    assert report.draft_entries_read is None


def test_later_admissions_add_up_and_make_running_rows_wait() -> None:
    recorder = record(
        [
            prefill(1.0, 5),
            prefill(2.0),
            RowStarted(0, "a", 10, 1, ""),
            StepFinished(0, 0, (RowStep(0, (2,), "", 0, 0),), STEP),
            prefill(0.5, 5),
            prefill(3.0),
            RowStarted(1, "b", 10, 1, ""),
            StepFinished(1, 0, (RowStep(0, (3,), "", 0, 0), RowStep(1, (4,), "", 0, 0)), STEP),
        ]
    )
    report = recorder.report()
    assert report.phases.prefill == pytest.approx(5.0)
    # row 0: two steps of 1 s and 3 s of waiting for 2 tokens; row 1: one step for one token
    assert report.tpot_s == pytest.approx((5 / 2 + 1) / 2)


def test_selection_after_the_first_token_is_part_of_tpot_and_of_an_unfinished_run() -> None:
    steps = ((0, (2, 3), PhaseTimes(prefill=9.0, select=1.5, other=0.5)), (1, (4,), PhaseTimes()))
    recorder = record([RowStarted(0, "a", 10, 1, "")])
    for step, tokens, waited in steps:
        recorder.add(StepFinished(step, 1, (RowStep(0, tokens, "", 1, 1),), STEP, waited))
    tally = recorder.tally()
    assert tally.tpot_s == pytest.approx((1.5 + 0.5 + 1 + 1) / 3)
    assert tally.tpot_s == pytest.approx(tally.decode_seconds / tally.decode_tokens)
    assert tally.phases.select == 1.5 and tally.phases.prefill == 0.0, "counted on its own"


def test_a_run_that_accepts_everything_shows_1_at_every_position() -> None:
    recorder = record([RowStarted(0, "a", 10, 1, "")])
    for step, gamma in enumerate((4, 4, 2)):
        tokens = tuple(range(gamma + 1))
        recorder.add(StepFinished(step, gamma, (RowStep(0, tokens, "", gamma, gamma),), STEP))
    assert recorder.tally().acceptance_rate_per_position == (1.0,) * 4


def test_plain_decoding_has_no_acceptance() -> None:
    recorder = record(
        [
            RowStarted(0, "a", 10, 1, "x"),
            StepFinished(0, 0, (RowStep(0, (2,), "y", 0, 0),), STEP),
        ]
    )
    tally = recorder.tally()
    assert tally.acceptance_rate is None
    assert tally.mean_acceptance_length is None
    assert tally.recent_acceptance_rate is None
    assert tally.acceptance_rate_per_position == () and tally.histogram == ()


def test_nothing_recorded_is_a_report_too() -> None:
    report = Recorder().report()
    assert report.rows == () and report.tpot_s is None and report.tokens_per_s is None
    assert report.phases.wall == 0.0


def test_rows_of_one_token_have_no_rate_of_steps_and_not_0() -> None:
    events: list[Event] = [
        prefill(2.0), RowStarted(0, "a", 10, 1, "x"), RowFinished(0, "length", (1,), "x"),
        RunFinished(PhaseTimes(prefill=2.0, other=0.001), 0.0),
    ]  # fmt: skip
    report = record(events).report()
    assert (report.decode_tokens, report.decode_seconds) == (0, pytest.approx(0.001))
    assert report.tokens_per_s is None and report.tpot_s is None


def test_recent_acceptance_forgets_old_steps() -> None:
    recorder = record([RowStarted(0, "a", 10, 1, "")])
    for step in range(5 + RECENT_STEPS):
        accepted = 0 if step < 5 else 4
        tokens = tuple(range(accepted + 1))
        recorder.add(StepFinished(step, 4, (RowStep(0, tokens, "", 4, accepted),), STEP))
    tally = recorder.tally()
    assert tally.recent_acceptance_rate == 1.0
    assert tally.acceptance_rate == pytest.approx(RECENT_STEPS / (5 + RECENT_STEPS))
