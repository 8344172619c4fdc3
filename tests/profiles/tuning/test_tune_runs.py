"""What the real runs of `magicdec tune` do to its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.compare.verdict import Divergence, Losslessness
from magicdec.profiles.recorded.passes import Pass, Passes
from magicdec.profiles.tuning.verifying import Allowance

Tune = Callable[..., str]
FEW = ("--selector", "snapkv", "--budget", "40", "--gamma", "1,2", "--batch", "2")
JSON = ("--format", "json", "-q")


def test_sampling_is_tuned_too(tune: Tune, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to compare then; acceptance is Σ min(p, q), and the command keeps the sampling."""
    asked = (*FEW, "--context", "120", "--temperature", "0.8", "--seed", "3", "--draft-weights")
    (answer,) = json.loads(tune(*asked, "same", *JSON))["contexts"]
    drafts = [o for o in answer["predicted"] if o["gamma"]]
    assert {o["gamma"] for o in drafts} == {1, 2}
    for option in drafts:
        assert 1 < option["mean_acceptance_length"] < option["gamma"] + 1
    assert {one["gamma"] for one in answer["measured"]} == {0, 1, 2}
    assert all(len(one["speedups"]) >= 2 for one in answer["measured"])
    command = answer["recommended"]["command"]
    assert "--temperature 0.8" in command and "--seed 3" in command
    assert run_command_line([*command.split()[1:], "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["temperature"] == 0.8


def test_a_calibration_of_a_slower_machine_is_noticed_and_scaled(tune: Tune) -> None:
    """A step of the tiny model takes milliseconds, not the seconds that were calibrated."""
    asked = (*FEW, "--context", "120", "--verify", "1", "--repeats", "1")
    page = tune(*asked, plain=5.0)
    said = re.search(r"a plain step took ([\d.]+) ms .*, ([\d.]+) by the calibration", page)
    assert said is not None and float(said[1]) < 1000 < float(said[2])
    (answer,) = json.loads(tune(*asked, *JSON, plain=5.0))["contexts"]
    assert answer["measured_by_predicted"]["plain"] < 0.2
    # What did not run is scaled on the page: no tokens/s of a machine that takes seconds a step.
    rates = [float(rate.replace(",", "")) for rate in re.findall(r"~([\d,.]+)$", page, re.M)]
    assert rates and min(rates) > 2 / 5.0 * 3


def test_no_time_for_real_runs_leaves_predictions(tune: Tune) -> None:
    page = tune(*FEW, "--context", "120", "--time-limit", "0.0001")
    assert "only predicted" in page
    assert "--time-limit 0.0001 left out at B 2, context 120: every real run" in page.replace(
        "\n", " "
    )


def test_little_time_runs_the_best_first_and_names_what_was_skipped(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes by a clock of ours: 5 s in all, 3 for each run."""
    clock = [0.0]
    run = Passes.run

    def timed(self: Passes, config: Any, listen: Any) -> Pass:
        clock[0] += 3.0
        return run(self, config, listen)

    def allowed(seconds: float | None) -> Allowance:
        return Allowance(seconds, now=lambda: clock[0])

    monkeypatch.setattr(Passes, "run", timed)
    monkeypatch.setattr(
        "magicdec.profiles.tuning.tuner.Allowance",
        lambda seconds: Allowance(seconds, now=lambda: clock[0]),
    )
    document = json.loads(tune(*FEW, "--context", "120", "--time-limit", "5", *JSON))
    (answer,) = document["contexts"]
    best = max((o for o in answer["predicted"] if o["gamma"]), key=lambda o: o["tokens_per_s"])
    ran = [one for one in answer["measured"] if one["gamma"]]
    assert [one["gamma"] for one in ran] == [best["gamma"]]
    assert answer["left_out"] and any("--time-limit 5" in note for note in document["notes"])


def test_a_limit_that_only_a_smaller_batch_keeps_is_found_by_running_there(
    tune: Tune, slowed: Callable[..., None]
) -> None:
    """Predicted fast enough in the larger batch; real runs say that it is not."""
    slowed(lambda batch, config: batch == 3, 1e4)
    asked = (*FEW[:-2], "--batch", "1,3", "--context", "60", "--repeats", "1", "--verify", "1")
    (answer,) = json.loads(tune(*asked, "--max-tpot", "2000", *JSON))["contexts"]
    assert {one["batch"] for one in answer["measured"]} == {1, 3}
    best = answer["recommended"]
    assert best["batch"] == 1 and best["within_max_tpot"] and best["proven"]


@pytest.mark.parametrize("objective", ["throughput", "tpot"])
def test_a_short_context_is_best_decoded_plainly(
    tune: Tune, slowed: Callable[..., None], objective: str
) -> None:
    """Batch 1 and hardly more context than budget: the draft reads all that the target does."""
    slowed(lambda batch, config: config.gamma > 0, 10.0)
    asked = ("--selector", "streaming", "--budget", "40", "--gamma", "1", "--batch", "1")
    page = tune(*asked, "--context", "45", "--objective", objective, "--draft-weights", "same")
    assert "Don't speculate" in page and "--gamma 0" in page
    assert "plain decoding" in page and "profile export" not in page


def test_a_grid_is_decided_by_real_runs_in_each_context(
    tune: Tune, slowed: Callable[..., None]
) -> None:
    """The calibration promises much everywhere; drafting pays in neither context."""
    slowed(lambda batch, config: config.gamma > 0, 100.0)
    asked = (*FEW[:-2], "--batch", "1,3", "--context", "60,120", "--verify", "1", "--repeats", "1")
    page = tune(*asked, draft=0.0001)
    assert page.count("Don't speculate (measured)") == 2
    for answer in json.loads(tune(*asked, *JSON, draft=0.0001))["contexts"]:
        assert answer["recommended"]["speculate"] is False and answer["recommended"]["proven"]
        assert {one["gamma"] for one in answer["measured"]} >= {0, 1} or {
            one["gamma"] for one in answer["measured"]
        } >= {0, 2}


def test_the_map_around_a_single_place(tune: Tune) -> None:
    asked = (*FEW, "--context", "120", "--verify", "0")
    page = tune(*asked)
    assert "where it would pay, best draft of each place; batch down" in page
    assert "with the acceptance of context 120" in page
    (answer,) = json.loads(tune(*asked, *JSON))["contexts"]
    places = {(o["batch"], o["context"]) for o in answer["around"]}
    # Not below the budget of 40, not beyond the 512 tokens that the model was trained for.
    assert places == {(b, c) for b in (1, 2, 4, 8) for c in (60, 120, 240, 480)}
    here = next(o for o in answer["around"] if (o["batch"], o["context"]) == (2, 120))
    best = max((o for o in answer["predicted"] if o["gamma"]), key=lambda o: o["tokens_per_s"])
    assert here["speedup"] == pytest.approx(best["speedup"])


def test_another_text_is_no_candidate_and_has_an_exit_code_of_its_own(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Losslessness(True, (Divergence(0, 3, 7, 9, gap=5.0, tolerance=0.1),))
    monkeypatch.setattr(Passes, "check", lambda *given: wrong)
    asked = (*FEW, "--context", "120", "--repeats", "1", "--verify", "1")
    document = json.loads(tune(*asked, *JSON, code=4))
    (answer,) = document["contexts"]
    assert [one["gamma"] for one in answer["measured"]] == [0]
    assert not answer["recommended"]["speculate"]
    assert any("gave another text than plain decoding" in note for note in document["notes"])
