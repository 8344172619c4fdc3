"""Drafts past a row's end are not accepted: what counts was emitted, and what was cut is said."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from magicdec.engine.events import StepFinished
from magicdec.engine.gamma.policy import Situation
from magicdec.engine.report import Recorder

GAMMA = 6


def ending_with(model: Any, token: int) -> Any:
    """The model, but it ends its rows with that token."""
    model = copy(model)
    model.spec = replace(model.spec, eos_ids=(token,))
    return model


@dataclass
class Watching:
    """A fixed γ that keeps what it could have known."""

    seen: list[tuple[float, ...]] = field(default_factory=list)
    name: str = "watching"
    source: str = ""
    stop: float | None = None

    def gamma(self, now: Situation) -> int:
        self.seen.append(tuple(now.history._judged))
        return now.most


def tally(events: list[Any]) -> Any:
    recorder = Recorder()
    for event in events:
        recorder.add(event)
    return recorder.report()


def shares(events: list[Any]) -> list[Any]:
    return [row for event in events if isinstance(event, StepFinished) for row in event.rows]


def test_of_a_draft_beyond_the_end_of_text_only_what_was_emitted_is_accepted(decode, tiny, prompt):
    said = decode(tiny().ours, [prompt(30)], max_new_tokens=12, ignore_eos=True).tokens[0]
    last = next(i for i in range(3, 10) if said[i] not in said[:i])  # drafted as 3rd or later
    got = decode(
        ending_with(tiny().ours, said[last]),
        [prompt(30)],
        gamma=GAMMA,
        draft_kv="full",
        max_new_tokens=40,
    )
    assert got.tokens == [said[: last + 1]] and got.reasons == ["eos"]
    report, rows = tally(got.events), shares(got.events)
    assert rows[-1].accepted == len(rows[-1].tokens) and rows[-1].cut == GAMMA - rows[-1].accepted
    gained = sum(len(row.tokens) for row in rows)
    assert gained == last == report.num_spec_tokens
    assert report.mean_acceptance_length == gained / len(rows)
    assert report.num_cut_draft_tokens == rows[-1].cut > 0
    assert report.num_draft_tokens == GAMMA * len(rows) - rows[-1].cut
    assert report.acceptance_rate == 1.0, "it is the control, which is never rejected"
    assert set(report.acceptance_rate_per_position) == {1.0}
    assert report.rows[0].accepted == report.num_accepted_draft_tokens


def test_a_stop_string_inside_a_draft_cuts_it_too(decode, tiny, prompt):
    said = decode(tiny().ours, [prompt(30)], max_new_tokens=12, ignore_eos=True).tokens[0]
    got = decode(
        tiny().ours, [prompt(30)], gamma=GAMMA, draft_kv="full", max_new_tokens=40,
        ignore_eos=True, stop=(f"w{said[3]} ",),
    )  # fmt: skip
    report = tally(got.events)
    assert got.reasons == ["stop"] and report.num_cut_draft_tokens > 0
    assert report.num_accepted_draft_tokens == report.num_spec_tokens, "no token of the target's"
    assert report.acceptance_rate == 1.0


def test_a_tree_counts_no_generation_past_the_end(decode, tiny, prompt):
    plain = decode(tiny().ours, [prompt(30)], max_new_tokens=12, ignore_eos=True)
    said = plain.tokens[0]
    last = next(i for i in range(2, 10) if said[i] not in said[:i])
    got = decode(
        ending_with(tiny().ours, said[last]), [prompt(30)], gamma=4, tree="sequoia",
        tree_shape=(0, 0, 1, 2, 3), selector="window", budget=200, max_new_tokens=40,
    )  # fmt: skip
    report = tally(got.events)
    assert got.tokens == [said[: last + 1]]
    assert report.num_spec_tokens == last == report.num_spec_steps * report.mean_acceptance_length
    assert sum(report.siblings_accepted) == report.num_accepted_draft_tokens
    assert sum(n * a for a, n in enumerate(report.histogram)) == report.num_accepted_draft_tokens


def test_what_chooses_gamma_sees_no_rejection_where_a_row_ended(decode, tiny, prompt):
    said = decode(tiny().ours, [prompt(30)], max_new_tokens=12, ignore_eos=True).tokens[0]
    last = next(i for i in range(1, 6) if said[i] not in said[:i])
    policy = Watching()
    got = decode(
        ending_with(tiny().ours, said[last]), [prompt(30), prompt(30, 1)], gamma=GAMMA,
        draft_kv="full", max_new_tokens=20, gamma_policy=policy,
    )  # fmt: skip
    assert got.reasons[0] == "eos"
    first = next(step for step in got.steps if any(row.cut for row in step.rows))
    ended = next(row for row in first.rows if row.cut)
    judged = policy.seen[first.step]
    whole = [row for row in first.rows if not row.cut]
    assert judged[ended.accepted] == pytest.approx(len(whole)), (
        "what is past the end counts nowhere"
    )
    assert judged[0] == pytest.approx(len(whole) + 1)
