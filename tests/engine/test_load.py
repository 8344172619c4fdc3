"""What is prepared once is phase `load`: before the first prompt, and kept for the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import PHASES, Loaded, PhaseTimes, RowStarted, StepFinished
from magicdec.engine.report import Recorder
from magicdec.engine.request import Request
from magicdec.engine.session import Session, open_session
from magicdec.kernels.linear import Int8Linear
from magicdec.profiles.recorded.run_record import Speedup

HOUR = 3600.0


class Watch:
    """A clock that stands still but for what the test says takes an hour."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any, **kwargs: Any) -> Any:
            self.now += HOUR
            return make(*args, **kwargs)

        return slow


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def session(checkpoint: Path, watch: Watch) -> Session:
    opened = open_session(str(checkpoint), device="cpu", attention="sdpa", threads=1)
    opened._opening = 0.0
    opened.clock.now = watch
    return opened


REQUESTS = [Request(f"{i}", tuple((5 * n + i) % 250 for n in range(50)), i) for i in range(2)]


def config(**changes: Any) -> DecodeConfig:
    same = dict(max_new_tokens=12, gamma=3, budget=16, selector="streaming", ignore_eos=True)
    return DecodeConfig(**{**same, "draft_weights": "int8", **changes})


@pytest.fixture
def slow_int8(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Every int8 linear takes an hour to make."""
    monkeypatch.setattr(Int8Linear, "__init__", watch.taking(Int8Linear.__init__))
    return watch


@pytest.mark.parametrize("draft", ["self", "layers:1", "lookup+self", "layers:1+self"])
def test_int8_weights_are_made_before_the_first_prompt(
    session: Session, slow_int8: Watch, draft: str
) -> None:
    events = list(session.run(REQUESTS, config(draft=draft), batch=2))
    made = slow_int8.now
    assert made >= 5 * HOUR and made % HOUR == 0, "a layer's four and the head"
    assert isinstance(events[0], Loaded) and events[0].seconds == made
    phases = events[-1].phases
    assert phases.load == phases.wall == made, "nothing else took any time"
    for event in events:
        if isinstance(event, StepFinished):
            assert (event.waited + event.phases).wall == 0.0
    recorder = Recorder()
    for event in events:
        recorder.add(event)
    assert recorder.report().decode_seconds == 0.0 and recorder.report().tpot_s == 0.0


@pytest.mark.parametrize("draft", ["self", "layers:1"])
def test_a_later_run_finds_them(session: Session, slow_int8: Watch, draft: str) -> None:
    list(session.run(REQUESTS, config(draft=draft), batch=2))
    model = session.model if draft == "self" else session.model.first(1)
    twin, before = model.quantized, slow_int8.now
    events = list(session.run(REQUESTS, config(draft=draft, gamma=2, budget=20), batch=2))
    assert slow_int8.now == before and events[-1].phases.load == 0.0
    assert model.quantized is twin
    assert (session.model if draft == "self" else session.model.first(1)) is model


def test_an_early_exit_and_the_whole_model_share_int8_layers(
    session: Session, slow_int8: Watch
) -> None:
    model = session.model
    early = model.first(1).quantized
    assert slow_int8.now == 5 * HOUR and model.twin_bytes == early.streamed_bytes
    whole = model.quantized
    assert slow_int8.now == 9 * HOUR, "the second layer's four"
    assert whole._layers[0] is early._layers[0] and whole._head is early._head
    assert model.twin_bytes == whole.streamed_bytes == model.nbytes - 4 * model.spec.parameters


def test_weights_and_draft_model_are_load_too(
    session: Session, watch: Watch, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_decoder", watch.taking(session._decoder))
    monkeypatch.setattr(session.drafts, "_load", session._decoder)
    wanted = config(draft=str(checkpoint), draft_weights="same")
    first = list(session.run(REQUESTS, wanted, batch=2))
    assert first[0] == Loaded(2 * HOUR) and first[-1].phases == PhaseTimes(load=2 * HOUR)
    second = list(session.run(REQUESTS, wanted, batch=2))
    assert second[0] == Loaded(0.0)


def test_weights_that_were_asked_for_before_count_to_the_first_run(
    session: Session, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_decoder", watch.taking(session._decoder))
    assert session.model is session.model and watch.now == HOUR
    runs = [list(session.run(REQUESTS, config(gamma=0), batch=2)) for _ in range(2)]
    assert [events[-1].phases.load for events in runs] == [HOUR, 0.0]


def test_an_interrupted_run_reports_its_load(session: Session, slow_int8: Watch) -> None:
    recorder = Recorder()
    for event in session.run(REQUESTS, config(), batch=2):
        recorder.add(event)
        if isinstance(event, RowStarted):
            break
    report = recorder.report()
    assert not report.finished and report.phases.load == slow_int8.now > 0


def report_of(phases: PhaseTimes) -> Any:
    """A finished run of two steps in which a row says a token."""
    from magicdec.engine.events import RowStep, RunFinished

    def events() -> Iterator[Any]:
        yield RowStarted(0, "d", 10, 1, "a")
        yield StepFinished(1, 0, (RowStep(0, (1,), "b", 0, 0),), PhaseTimes())
        yield RunFinished(phases, 0.0)

    recorder = Recorder()
    for event in events():
        recorder.add(event)
    return recorder.report()


def test_end_to_end_counts_what_both_need_on_both_sides_and_the_drafts_load_on_its_own() -> None:
    plain = report_of(PhaseTimes(load=2.0, prefill=3.0, verify=10.0))
    after = report_of(PhaseTimes(load=1.0, prefill=0.1, draft=2.0, verify=3.0))
    speedup = Speedup.of(plain, after)
    assert speedup.decode == 10 / 5
    assert speedup.end_to_end == pytest.approx((2 + 3 + 10) / (2 + 3 + 1 + 5))
    assert (speedup.load_s, speedup.draft_load_s, speedup.prefill_s) == (2.0, 1.0, 3.0)


def test_a_profile_has_the_same_end_to_end_and_reads_files_without_load() -> None:
    from magicdec.profiles.files.json_fields import Fields
    from magicdec.profiles.recorded.decode import _sample
    from magicdec.profiles.recorded.encode import _sample as encoded
    from magicdec.profiles.recorded.from_reports import sample_of
    from magicdec.profiles.recorded.schema import Repeat

    plain = report_of(PhaseTimes(load=2.0, prefill=3.0, verify=10.0))
    after = report_of(PhaseTimes(load=1.0, prefill=0.1, draft=2.0, verify=3.0))
    repeat = Repeat(replace(sample_of(plain), prefilled=True), sample_of(after))
    assert repeat.speedup_end_to_end == Speedup.of(plain, after).end_to_end
    written = encoded(repeat.speculative)
    assert written["phases_s"].keys() == set(PHASES)
    assert _sample(Fields(written, "now")) == repeat.speculative
    del written["phases_s"]["load"], written["num_spec_tokens"], written["num_cut_draft_tokens"]
    older = _sample(Fields(written, "older"))
    assert older.phases == replace(repeat.speculative.phases, load=0.0)
    assert older.num_spec_tokens is None
