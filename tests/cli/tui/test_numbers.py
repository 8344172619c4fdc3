"""What the app computes without Textual: paces, acceptances, knob steps, graphs, the wire."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magicdec_scripted import READY, SETTINGS, a_run, plain_events, speculative_events

from magicdec.cli.output.console import ASCII, Symbols
from magicdec.cli.output.live_state import PLAIN, SPECULATIVE
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.expected_acceptance import Book
from magicdec.cli.tui.forecast import Forecaster
from magicdec.cli.tui.graphs import Point, curve_graph, share_graph
from magicdec.cli.tui.knobs import around, tui_knobs
from magicdec.cli.tui.process.messages import (
    Gone,
    Happened,
    Loading,
    Open,
    PassBegan,
    Run,
    RunBegan,
    Stop,
)
from magicdec.cli.tui.process.wire import decode, encode
from magicdec.cli.tui.runs import Pace, RunState, bucketed, live_speedup, spread_of
from magicdec.cli.tui.screens.layout import size_class
from magicdec.engine.errors import ConfigError
from magicdec.engine.events import PhaseTimes, RowStep, StepFinished, TreeShare
from magicdec.profiles.acceptance.rates import AcceptanceRates

KNOBS = {knob.name: knob for knob in tui_knobs()}


def step(seconds: float, tokens: int) -> StepFinished:
    share = RowStep(0, tuple(range(tokens)), "", 3, tokens - 1, 0)
    return StepFinished(1, 3, (share,), PhaseTimes(verify=seconds))


def pace(steps: Sequence[tuple[float, int]]) -> Pace:
    found = Pace()
    for seconds, tokens in steps:
        found.add(step(seconds, tokens))
    return found


def test_the_spread_covers_the_true_speedup_about_as_often_as_it_says() -> None:
    """Steps with a known mean time per token; 95% intervals should cover 2.0 in most trials."""
    dice = random.Random(1)

    def sample(mean: float) -> Pace:
        return pace([(mean * n * dice.uniform(0.5, 1.5), n)
                     for n in (dice.randint(1, 4) for _ in range(60))])  # fmt: skip

    covered = 0
    for _ in range(300):
        plain, speculative = sample(0.2), sample(0.1)
        found = live_speedup(plain, speculative)
        assert found is not None and found.spread is not None
        covered += abs(found.speedup - 2.0) <= found.spread
    assert 0.90 <= covered / 300 <= 0.99


def test_steps_that_never_vary_have_no_spread_and_few_steps_no_claim() -> None:
    steady = pace([(0.1, 2)] * 10)
    spread = spread_of(1.0, steady, steady)
    assert spread is not None and spread < 1e-6
    assert spread_of(1.0, steady, pace([(0.1, 2)] * 3)) is None
    assert live_speedup(steady, Pace()) is None


def test_pooling_keeps_every_step_and_weighs_by_what_was_drafted() -> None:
    steps = [(3, 3), (0, 1), (1, 2), (0, 0)]
    assert bucketed(steps, 10) == [1.0, 0.0, 0.5, 0.0]
    assert bucketed(steps, 2) == [3 / 4, 1 / 2]
    assert bucketed([], 5) == []


def expected(book: Book, settings: Settings, weights: str) -> AcceptanceRates:
    found = book.expect(settings, weights)
    assert found is not None
    return found


def test_acceptance_is_measured_interpolated_or_assumed_and_says_so() -> None:
    book = Book()
    expect = partial(expected, book)
    assert expect(SETTINGS, "int8").assumed
    low, high = (Settings(budget=b) for b in (64, 256))
    book.learn(1, low, "int8", (0.6, 0.3))
    book.learn(2, high, "int8", (0.8, 0.6))
    assert expect(high, "int8").tokens_per_step(2) == pytest.approx(1 + 0.8 + 0.6)
    middle = expect(Settings(budget=128), "int8")  # half-way on a logarithmic scale
    assert middle.rates == pytest.approx(((0.6 + 0.8) / 2, (0.5 + 0.75) / 2))
    assert "run 1" in middle.source and "run 2" in middle.source
    assert expect(Settings(budget=1024), "int8").rates == expect(high, "int8").rates
    assert expect(Settings(budget=256, selector="streaming"), "int8").assumed
    assert expect(high, "same").assumed and not middle.assumed
    assert expect(Settings(budget=256, temperature=0.7), "int8").assumed


def test_a_run_tells_more_than_a_calibration_and_either_more_than_an_assumption() -> None:
    book = Book()
    expect, settings = partial(expected, book), Settings(budget=256)
    book.learn(3, settings, "int8", (0.5,))
    book.learn_calibrated("snapkv", 256, "int8", (0.9,))
    assert expect(settings, "int8").rates == (0.5,)
    book.learn_calibrated("streaming", 256, "int8", (0.9,))
    assert "calibration" in expect(Settings(selector="streaming"), "int8").source


def test_of_early_exits_no_acceptance_is_assumed() -> None:
    book, exit = Book(), Settings(draft="layers:10")
    assert book.expect(exit, "same") is None
    book.learn(2, exit, "same", (0.13,))
    found = book.expect(exit, "same")
    assert found is not None and found.rates == (0.13,)
    assert book.expect(Settings(draft="layers:10", temperature=0.1), "same") is None


def test_a_longer_draft_goes_on_at_the_last_rate() -> None:
    book = Book()
    book.learn(1, SETTINGS, "same", (0.5, 0.25))
    omega = expected(book, SETTINGS, "same").tokens_per_step(4)
    assert omega == pytest.approx(1 + 0.5 + 0.25 + 0.125 + 0.0625)


@pytest.fixture
def forecaster(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Forecaster:
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path))
    found = Forecaster()
    assert "magicdec calibrate" in found.see(READY)
    return found


def test_a_forecast_is_the_cost_models_and_is_labelled(forecaster: Forecaster) -> None:
    found = forecaster.forecast(SETTINGS)
    assert found is not None and found.rough and found.assumed
    assert found.speedup == pytest.approx(found.omega / found.break_even)
    assert forecaster.forecast(Settings(context=1000, gamma=0)) is None
    assert forecaster.forecast(Settings(context=None)) is None
    assert forecaster.forecast(Settings(context=None), context=1000) is not None


def test_after_a_run_the_preview_of_its_settings_is_what_was_measured(
    forecaster: Forecaster,
) -> None:
    run = RunState(1, SETTINGS, 0.0)
    for report in a_run(1):
        match report:
            case RunBegan():
                run.info = report.info
            case PassBegan():
                run.begin_pass(report.title, None)
            case Happened():
                assert run.main is not None
                run.main.add(report.event)
    plain, drafted = run.passes[PLAIN], run.passes[SPECULATIVE]
    measured = run.measured(plain)
    assert measured is not None and run.info is not None
    shares, weights = drafted.tally.acceptance_rate_per_position, forecaster.weights(SETTINGS)
    forecaster.book.learn(1, SETTINGS, weights, shares)
    before = forecaster.forecast(SETTINGS)
    forecaster.learn(1, SETTINGS, run.info.context, plain.tally, drafted.tally)
    after = forecaster.forecast(SETTINGS)
    assert before is not None and before.rough and before.run is None
    assert after is not None and not after.rough and after.run == 1
    assert after.speedup == pytest.approx(measured.speedup) != before.speedup
    assert after.break_even == pytest.approx(after.omega / measured.speedup)
    tally = drafted.tally
    assert after.step == pytest.approx(tally.decode_seconds / tally.steps)
    assert after.times.plain == pytest.approx(plain.tally.decode_seconds / plain.tally.steps)
    longer = forecaster.forecast(dataclasses.replace(SETTINGS, max_new_tokens=1000))
    assert longer is not None and longer.speedup > after.speedup, "selection is spread wider"
    assert forecaster.ready == READY
    forecaster.see(READY)
    assert forecaster.forecast(SETTINGS) == after, (
        "a tuning that calibrated nothing changes nothing"
    )


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("budget", "2,048", "e"), ("context", "al", "x"), ("temperature", "0.7", "0.7e"),
     ("gamma", "adapt", "adaptor"), ("batch", "16", "1.5")],
)  # fmt: skip
def test_only_what_may_become_a_value_can_be_typed(name: str, good: str, bad: str) -> None:
    assert KNOBS[name].begins(good) and not KNOBS[name].begins(bad)


def test_the_draft_weights_follow_the_engines_rule(forecaster: Forecaster) -> None:
    assert forecaster.weights(Settings()) == "int8"
    assert forecaster.weights(Settings(temperature=0.5)) == "same"
    assert forecaster.weights(Settings(selector="full")) == "same"
    assert forecaster.weights(Settings(draft_weights="same")) == "same"
    assert forecaster.weights(Settings(gamma=0, draft_weights="int8")) == "same"


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_steps_within_its_range_and_back(name: str) -> None:
    knob, settings = KNOBS[name], SETTINGS
    for up in (True, False):
        for _ in range(60):
            settings = knob.step(settings, up)
            settings.decode_config()
            if knob.numeric:
                value = getattr(settings, name)
                assert (knob.knob.low or 0) <= value <= (knob.knob.high or math.inf)


def test_knobs_read_what_people_type() -> None:
    assert KNOBS["context"].set(SETTINGS, "4,000").context == 4000
    assert KNOBS["context"].set(SETTINGS, "all").context is None
    assert KNOBS["temperature"].set(SETTINGS, "greedy").temperature == 0
    with pytest.raises(ConfigError, match="batch"):
        KNOBS["batch"].set(SETTINGS, "many")
    with pytest.raises(ConfigError, match="nobody"):
        KNOBS["selector"].set(SETTINGS, "nobody")


def test_back_to_greedy_drops_what_only_sampling_has() -> None:
    sampling = Settings(temperature=0.7, top_p=0.9, seed=3)
    greedy = KNOBS["temperature"].set(sampling, "0")
    assert (greedy.top_p, greedy.seed) == (1.0, None)


@given(st.sampled_from(["batch", "context", "budget", "max_new_tokens"]), st.integers(1, 100_000))
def test_a_sweep_around_a_value_holds_it(name: str, value: int) -> None:
    knob = KNOBS[name]
    values = around(knob, knob.put(Settings(context=4096), value))
    assert float(value) in values and values == sorted(set(values)) and len(values) <= 8


@given(
    st.lists(st.floats(0, 1), max_size=80), st.integers(6, 60), st.integers(1, 12),
    st.sampled_from([Symbols(), ASCII]),
)  # fmt: skip
def test_a_rate_graph_has_the_size_it_was_given(
    values: list[float], width: int, height: int, look: Symbols
) -> None:
    lines = share_graph(values, width, height, "green", look)
    assert len(lines) == height and all(line.cell_len <= width for line in lines)
    assert look is not ASCII or all(line.plain.isascii() for line in lines)


@given(
    st.lists(st.tuples(st.floats(1, 1e5), st.floats(0, 8)), min_size=1, max_size=20),
    st.integers(20, 90), st.integers(4, 20), st.booleans(), st.sampled_from([Symbols(), ASCII]),
)  # fmt: skip
def test_a_curve_has_the_size_it_was_given_and_shows_its_points(
    data: list[tuple[float, float]], width: int, height: int, logarithmic: bool, look: Symbols
) -> None:
    line = sorted(data)
    point = Point(line[0][0], line[0][1], "@", "")
    lines = curve_graph(
        line, [point], width=width, height=height, ticks=[x for x, _ in line],
        logarithmic=logarithmic, symbols=look,
    )  # fmt: skip
    assert len(lines) == height and all(text.cell_len <= width for text in lines)
    assert "".join(text.plain for text in lines).count("@") == 1


@given(st.integers(1, 400), st.integers(1, 120))
def test_size_classes_grow_with_the_screen(width: int, height: int) -> None:
    order = ["-tiny", "-compact", "-medium", "-large"]
    here = order.index(size_class(width, height))
    assert here <= order.index(size_class(width + 1, height))
    assert here <= order.index(size_class(width, height + 1))


def test_the_contracts_sizes() -> None:
    sizes = [(59, 40), (60, 16), (80, 24), (120, 40), (200, 50)]
    found = [size_class(*size) for size in sizes]
    assert found == ["-tiny", "-compact", "-compact", "-medium", "-large"]


def test_messages_survive_the_wire() -> None:
    messages: list[object] = [
        Open(("a b", "ü"), SETTINGS), Run(3, Settings(selector_option={"sinks": "8"})), Stop(3),
        Loading("x", None), READY, Gone("e"), *a_run(1), *plain_events(), *speculative_events(),
    ]  # fmt: skip
    share = RowStep(0, (5, 6), "a b", 4, 1, 2, TreeShare(2, ((1, 2), (0, 1))))
    messages.append(Happened(1, StepFinished(1, 2, (share,), PhaseTimes()), ((0, "x"),)))
    for message in messages:
        line = encode(message)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert decode(line) == message


@pytest.mark.parametrize("line", ["{}x", '{"_":"Nothing"}', '{"_":"Stop","walk":1}'])
def test_what_is_no_message_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        decode(line)
