"""Runs that take turns in one cache say what they say alone, and their times are their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.clock import Clock
from magicdec.engine.compare.comparison import compare
from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Loaded, RowFinished, RunFinished, StepFinished
from magicdec.engine.request import Request
from magicdec.engine.session import Session, open_session

NEW = 40


@pytest.fixture
def session(checkpoint: Path) -> Session:
    return open_session(str(checkpoint), device="cpu", attention="sdpa", threads=1)


def rows(*lengths: int) -> list[Request]:
    text = [(7 * i * i + 3 * i) % 250 for i in range(max(lengths))]
    return [Request(f"[:{n}]", tuple(text[:n]), i) for i, n in enumerate(lengths)]


def said(events: list[Any]) -> dict[int, tuple[int, ...]]:
    return {e.row: e.token_ids for e in events if isinstance(e, RowFinished)}


WAYS: list[dict[str, Any]] = [
    {"selector": "snapkv"}, {"selector": "streaming", "draft_weights": "int8"},
    {"selector": "topk"}, {"selector": "reuse"}, {"draft_kv": "full"}, {"draft": "lookup"},
    {"draft": "layers:1"}, {"draft": "lookup+self"}, {"tree": "sequoia"},
    {"selector": "snapkv", "sampled": True}, {"selector": "h2o"},
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_both_runs_say_and_do_what_they_do_alone(session: Session, way: dict[str, Any]) -> None:
    from magicdec.engine.accept.sampling import SamplingConfig

    way = dict(way)
    sampling = (
        SamplingConfig(temperature=0.9, seed=5) if way.pop("sampled", 0) else SamplingConfig()
    )
    config = DecodeConfig(
        max_new_tokens=NEW, gamma=3, budget=24, ignore_eos=True, sampling=sampling,
        **{"draft_weights": "same", **way},
    )  # fmt: skip
    requests = rows(60, 45, 52)
    alone = [list(session.run(requests, replace(config, gamma=gamma), batch=3)) for gamma in (0, 3)]
    both = list(compare(session, requests, config, batch=3))
    for speculative in (False, True):
        mine = [event for kind, event in both if kind is speculative]
        assert said(mine) == said(alone[speculative])
        steps, before = (
            [[(r.row, r.tokens, r.drafted, r.accepted) for r in e.rows] for e in events
             if isinstance(e, StepFinished)]
            for events in (mine, alone[speculative])
        )  # fmt: skip
        assert steps == before
    kinds = [kind for kind, event in both if isinstance(event, StepFinished)]
    changes = sum(a is not b for a, b in pairwise(kinds))
    assert changes >= 6, "they took turns"


def test_rows_that_wait_for_a_slot_run_one_pass_after_the_other(session: Session) -> None:
    config = DecodeConfig(max_new_tokens=12, gamma=3, budget=24, ignore_eos=True)
    requests = rows(60, 45, 52)
    both = list(compare(session, requests, config, batch=2))
    kinds = [kind for kind, event in both if isinstance(event, StepFinished)]
    assert kinds == sorted(kinds) and {*kinds} == {False, True}
    plain, speculative = (said([e for kind, e in both if kind is k]) for k in (False, True))
    assert plain == speculative and len(plain) == 3


def test_memory_that_is_short_is_not_spent_on_waiting(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DecodeConfig(max_new_tokens=12, gamma=3, budget=24, ignore_eos=True)
    forecast = session.forecast
    monkeypatch.setattr(
        session, "forecast",
        lambda *a, **k: replace(found := forecast(*a, **k), available=found.total + 100),
    )  # fmt: skip
    both = list(compare(session, rows(60, 45), config, batch=2))
    kinds = [kind for kind, event in both if isinstance(event, StepFinished)]
    assert kinds == sorted(kinds)


def ticking() -> Callable[[], float]:
    """Every look at the clock is a second later."""
    now = 0.0

    def look() -> float:
        nonlocal now
        now += 1.0
        return now

    return look


def test_each_run_is_charged_its_own_time_alone(session: Session) -> None:
    session.clock.now = ticking()
    config = DecodeConfig(
        max_new_tokens=24, gamma=3, budget=24, ignore_eos=True, draft_weights="same"
    )
    requests = rows(60, 45)
    list(session.run(requests, config, batch=2))  # the prompts are in the cache from here on
    alone = [list(session.run(requests, replace(config, gamma=g), batch=2))[-1] for g in (0, 3)]
    both = list(compare(session, requests, config, batch=2))
    ends = {kind: event for kind, event in both if isinstance(event, RunFinished)}
    for kind, before in enumerate(alone):
        mine = ends[bool(kind)].phases
        for name in ("load", "prefill", "select", "draft", "verify", "commit"):
            assert getattr(mine, name) == getattr(before.phases, name), name
        pauses = 8  # a look more, and one less, at each
        assert abs(mine.other - before.phases.other) <= pauses
        assert mine.wall == sum(
            getattr(mine, n) for n in ("load", "prefill", "select", "draft", "verify", "commit",
                                       "other")
        )  # fmt: skip


def test_closing_stops_both(session: Session) -> None:
    config = DecodeConfig(max_new_tokens=24, gamma=3, budget=24, ignore_eos=True)
    events = compare(session, rows(60, 45), config, batch=2)
    seen = 0
    for kind, _ in events:
        seen += kind
        if seen == 6:
            break
    events.close()
    again = list(session.run(rows(60, 45), replace(config, gamma=0), batch=2))
    assert isinstance(again[0], Loaded) and len(said(again)) == 2


def test_a_suspended_clock_charges_nobody_for_what_comes_between() -> None:
    now = 0.0
    clock = Clock(now=lambda: now)
    with clock.phase("verify"):
        now = 2.0
    stopped = clock.suspend()
    now = 10.0
    clock.restart()
    with clock.phase("draft"):
        now = 11.0
    assert clock.lap().wall == 1.0
    clock.resume(stopped)
    now = 12.0
    times = clock.lap()
    assert (times.verify, times.other, times.draft, times.wall) == (2.0, 1.0, 0.0, 3.0)
