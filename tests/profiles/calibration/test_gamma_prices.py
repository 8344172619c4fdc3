"""A calibration as prices for a policy."""

from __future__ import annotations

import pytest

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import Situation
from magicdec.profiles.predict.run import Work, costs_at
from magicdec.profiles.predict.settings import GRAIN, CalibratedPrices, adaptive, priced


def work(batch: int = 4, context: int = 4096, budget: int | None = 256, selector="snapkv") -> Work:
    return Work(
        batch=batch, contexts=(context,) * batch, new_tokens=(64,) * batch, gamma=8,
        drafter=DraftSpec(selector, budget=budget, draft_weights="int8"),
    )  # fmt: skip


@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
def test_prices_are_the_cost_models(calibration, gamma):
    prices = CalibratedPrices(calibration(), work())
    costs = costs_at(calibration(), work(), 3, 16 * GRAIN, gamma)
    want = float(costs.step(gamma)) if gamma else float(costs.plain)
    assert prices.step(3, 16 * GRAIN + 5, gamma) == want == prices.step(3, 16 * GRAIN, gamma)
    assert prices.prepare(1000) == pytest.approx(0.01 + 4e-5 * 1000)
    assert CalibratedPrices(calibration(), work(selector="full")).prepare(1000) == 0


def test_auto_by_calibration_drafts_where_it_pays(calibration):
    """Over the sweep the choice is the one of the least time per token, and not always the same."""
    chosen = set()
    for batch in (1, 64):
        for context in (256, 32768):
            prices = CalibratedPrices(calibration(), work(batch, context))
            for guess in (0.05, 0.9):
                now = Situation(8, batch, context, 1000.0)
                gamma = Auto(prices, guess).gamma(now)
                chosen.add(gamma)

                def token(g: int, prices=prices, guess=guess, batch=batch, context=context):
                    return prices.step(batch, context, g) / sum(guess**i for i in range(g + 1))

                assert token(gamma) <= min(map(token, range(9))) * (1 + 1e-9)
    assert 0 in chosen and max(chosen) > 2


def test_the_first_guess_is_what_calibrating_saw(calibration):
    found = priced(Auto(), calibration(), work())
    assert isinstance(found, Auto) and found.acceptance == pytest.approx(0.8)
    assert "snapkv 256" in found.source
    other = priced(Auto(), calibration(), work(selector="window"))
    assert isinstance(other, Auto) and other.acceptance == 0.8


def test_a_draft_stops_sooner_where_draft_steps_are_dear(calibration):
    long, short = (adaptive(calibration(), work(4, c)) for c in (32768, 512))
    assert 0 < long.stop < short.stop < 1 and "2026-11-29" in long.source
