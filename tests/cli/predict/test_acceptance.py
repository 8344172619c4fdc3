"""Acceptance by number, by position and from a recorded run; and what a speedup would take."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.engine.events import PhaseTimes
from magicdec.profiles.acceptance.rates import AcceptanceRates, conditional_rates
from magicdec.profiles.acceptance.recorded import recorded_acceptance
from magicdec.profiles.costs.grid import required_alpha
from magicdec.profiles.recorded.header import Header
from magicdec.profiles.recorded.schema import Cell, CellKey, Repeat, Sample
from magicdec.profiles.recorded.writer import ProfileWriter

RATES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def simulated(rates: list[float], steps: int = 200_000) -> float:
    """Tokens per step of drafts that are accepted position by position."""
    rng = np.random.default_rng(0)
    accepted = np.cumprod(rng.random((steps, len(rates))) < np.array(rates), axis=1).sum(axis=1)
    return float(1 + accepted.mean())


@pytest.mark.parametrize("rates", [[0.9, 0.8, 0.5], [0.3, 1.0], [0.7] * 5])
def test_tokens_per_step_by_position_is_what_a_simulation_gives(rates: list[float]) -> None:
    omega = AcceptanceRates(tuple(rates)).tokens_per_step(len(rates))
    assert omega == pytest.approx(simulated(rates), abs=0.02)


@given(st.floats(0, 1), st.integers(1, 12))
def test_equal_rates_by_position_are_one_rate_for_all(alpha: float, gamma: int) -> None:
    constant = AcceptanceRates((alpha,), constant=True).tokens_per_step(gamma)
    by_position = AcceptanceRates((alpha,) * gamma).tokens_per_step(gamma)
    assert constant == pytest.approx(by_position, rel=1e-12)
    assert constant == pytest.approx(sum(alpha**i for i in range(gamma + 1)))


def test_rates_say_nothing_about_a_longer_draft() -> None:
    with pytest.raises(ConfigError, match=r"at 2 positions.*draft of 3 tokens; end --gamma at 2"):
        AcceptanceRates((0.9, 0.8)).require_known(3)
    AcceptanceRates((0.9, 0.8)).require_known(2)
    AcceptanceRates((0.9,), constant=True).require_known(3)


@pytest.mark.parametrize("rate", [1.2, -0.1, float("nan"), float("inf")])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"in 0..1"):
        AcceptanceRates((0.5, rate))


def test_between_two_contexts_rates_are_interpolated_and_beyond_them_held_with_a_mark() -> None:
    known = AcceptanceRates((0.9,), contexts=((4_000, (0.9, 0.8)), (16_000, (0.7,))))
    middle = known.at(8_000)  # half-way on a logarithmic scale
    assert middle.rates == pytest.approx((0.8, (0.8 + 0.7) / 2)) and not middle.held
    for context, rates in ((4_000, (0.9, 0.8)), (16_000, (0.7,))):
        assert known.at(context).rates == rates and not known.at(context).held
    for context, rates in ((100, (0.9, 0.8)), (100_000, (0.7,))):
        assert known.at(context).rates == rates and known.at(context).held
    assert known.at(8_000).at(100_000) == middle, "it is that of a context now"


def test_rates_of_no_context_hold_at_every_one() -> None:
    one = AcceptanceRates((0.9, 0.8))
    assert one.at(100) is one
    at_one = AcceptanceRates((0.9,), contexts=((4_000, (0.9,)),))
    assert not at_one.at(4_000).held and at_one.at(8_000).held
    with pytest.raises(ConfigError, match=r"in 0..1"):
        AcceptanceRates((0.9,), contexts=((4_000, (1.9,)),))


@given(RATES)
def test_conditional_rates_undo_the_running_product(rates: list[float]) -> None:
    shares = np.cumprod(rates).tolist()
    found = conditional_rates(shares)
    assert np.cumprod(found) == pytest.approx(shares, abs=1e-12)
    assert all(0 <= rate <= 1 for rate in found)


def test_noise_that_rises_counts_as_certain_and_nothing_follows_nothing() -> None:
    assert conditional_rates([0.5, 0.6, 0.3, 0.0, 0.0]) == pytest.approx((0.5, 1, 0.5, 0, 0))


@given(st.floats(0, 1), st.integers(1, 32))
def test_required_alpha_inverts_tokens_per_step(alpha: float, gamma: int) -> None:
    omega = AcceptanceRates((alpha,), constant=True).tokens_per_step(gamma)
    found = float(required_alpha(omega, gamma))
    back = AcceptanceRates((found,), constant=True).tokens_per_step(gamma)
    assert back == pytest.approx(omega, rel=1e-9)
    assert found == pytest.approx(alpha, abs=1e-7)


def test_required_alpha_where_none_is_needed_or_none_suffices() -> None:
    found = required_alpha([[0.5, 1.0], [3.0, 3.001]], 2)
    assert found[0].tolist() == [0, 0] and found[1, 0] == 1 and np.isnan(found[1, 1])
    assert required_alpha([1.5, 2.5], [1, 2]) == pytest.approx([0.5, (7**0.5 - 1) / 2])


def record(path: Path, **counts: object) -> Path:
    path.write_text(json.dumps({"schema": "magicdec.run/1", "speculative_decoding": counts}))
    return path


def test_a_recorded_run_gives_its_rates(tmp_path: Path) -> None:
    path = record(tmp_path / "run.json", acceptance_rate_per_position=[0.8, 0.6, 0.3])
    found = recorded_acceptance(path)
    assert found.rates == pytest.approx((0.8, 0.75, 0.5))
    assert found.tokens_per_step(3) == pytest.approx(1 + 0.8 + 0.6 + 0.3)
    assert found.longest == 3


def test_a_run_that_drafted_one_token_says_nothing_of_two(tmp_path: Path) -> None:
    path = record(tmp_path / "run.json", acceptance_rate_per_position=[0.8])
    with pytest.raises(ConfigError, match="at 1 position,"):
        recorded_acceptance(path).require_known(2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "no acceptance by position"),
        ('{"speculative_decoding": 3}', "no acceptance by position"),
        (
            '{"speculative_decoding": {"acceptance_rate_per_position": [0.5, null]}}',
            "no acceptance",
        ),
        ('{"speculative_decoding": {"acceptance_rate_per_position": [2]}}', "no acceptance"),
        ('{"speculative_decoding": {"acceptance_rate_per_position": [NaN]}}', "no acceptance"),
        ('{"speculative_decoding": {"acceptance_rate_per_position": []}}', "drafted nothing"),
    ],
)
def test_a_file_that_is_no_record(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        recorded_acceptance(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        recorded_acceptance(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="is a directory"):
        recorded_acceptance(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not JSON"):
        recorded_acceptance(tmp_path / "bytes.json")


def test_a_profile_gives_the_acceptance_of_the_drafter_that_was_asked_for(tmp_path: Path) -> None:
    """Counts of all cells of one drafter are pooled; another budget's do not mix in."""
    header = Header(
        created="2026-01-01T00:00:00Z", tool="0", environment={}, model="tiny", dtype="float32",
        kv_dtype="float32", documents=(),
    )  # fmt: skip
    path = tmp_path / "p.jsonl"
    with ProfileWriter(path, header) as writer:
        for budget, batch, steps, policy in (
            (256, 1, (0, 0, 99), "adaptive"),  # drafts on where that is likely to be accepted
            (128, 1, (5, 0, 5), "fixed"),
            (128, 2, (0, 0, 10), "fixed"),
            (64, 1, (50, 0, 0), "fixed"),
        ):
            key = CellKey(
                batch=batch, context=100, selector="snapkv", budget=budget, gamma=2,
                temperature=0.0, draft_weights="same", gamma_policy=policy,
            )  # fmt: skip
            count, sample = sum(steps), Sample(10, 1.0, 5, PhaseTimes())
            writer.append(
                Cell(
                    key=key, repeats=(Repeat(None, sample),), accepted_per_step=steps,
                    drafted_per_position=(count, count),
                )
            )  # fmt: skip
            if policy == "adaptive":
                with pytest.raises(ConfigError, match="only cells of a γ that changes"):
                    recorded_acceptance(path)
    found = recorded_acceptance(path, budget=128)
    assert found.rates == pytest.approx((0.75, 1.0))
    assert "snapkv 128" in found.source and "20 steps" in found.source
    assert recorded_acceptance(path, budget=64).rates == (0, 0)
    assert "snapkv 64" in recorded_acceptance(path, budget=999).source  # the one with most steps
