"""The tree that a calibration says is the cheapest here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magicdec.cli.run.trees import with_shape
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.request import Request
from magicdec.engine.trees.shape import ShapeSearch
from magicdec.profiles.calibration.store import save_calibration
from magicdec.profiles.predict.run import Work, full_step
from magicdec.profiles.predict.settings import choose_tree

RATES = (0.7, 0.4, 0.3, 0.2)
WORK = Work(1, (4000,), (65,), 5, DraftSpec("snapkv", (), 256, 0.0, "int8"))


def faster(made, flops: float):
    device = replace(made.hardware.device, flops=flops)
    return replace(made, hardware=replace(made.hardware, device=device))


def test_no_other_size_or_depth_has_less_time_per_token(calibration):
    made = calibration()
    search = ShapeSearch(RATES, nodes=24, depth=5)
    chosen = choose_tree(made, WORK, RATES, nodes=24)
    plain = float(full_step(made, WORK).plain)

    def speedup(size: int, depth: int) -> float:
        costs = full_step(made, replace(WORK, gamma=size))
        step = depth * float(costs.draft) + float(costs.verify + costs.rest)
        return plain * search.tokens(size, depth) / step

    best = max(speedup(size, depth) for depth in range(1, 6) for size in range(depth, 25))
    assert chosen.speedup == pytest.approx(best)
    assert chosen.tokens == pytest.approx(search.tokens(len(chosen.shape.parents), 5), rel=0.5)


def test_where_arithmetic_is_free_the_whole_budget_is_used_and_where_it_is_dear_little(calibration):
    made = calibration()
    free = choose_tree(faster(made, 1e15), WORK, RATES, nodes=24).shape
    dear = choose_tree(faster(made, 2e10), WORK, RATES, nodes=24).shape
    assert len(free.parents) == 24 > 3 * len(dear.parents)


def test_run_takes_the_shape_of_the_machines_calibration_and_says_so(calibration):
    made = calibration()
    settings = Settings(tree="sequoia", gamma=5, tree_nodes=24, tree_rates=".7,.4,.3,.2")
    requests = [Request("doc", tuple(range(4000)), 0)]
    env = {**made.fingerprint, "draft_weights": "int8"}
    config = settings.decode_config()
    without, line = with_shape(config, settings, env, requests)
    assert len(without.tree_shape) == 24 and "with a calibration" in line
    save_calibration(made)
    shaped, line = with_shape(config, settings, env, requests)
    work = replace(WORK, new_tokens=(64,))
    chosen = choose_tree(made, work, RATES, nodes=24)
    assert shaped.tree_shape == chosen.shape.parents
    assert f"{chosen.speedup:.2f}× expected, calibration of 2026-11-29" in line
    other = replace(settings, tree="specexec")
    assert with_shape(other.decode_config(), other, env, requests) == (other.decode_config(), "")
