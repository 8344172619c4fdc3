"""Every way to draft has its price: what runs, what it reads, what it searches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.selectors.base import KVSelector, Search
from magicdec.profiles.costs.catalog import find_model
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.memory import memory
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.speculation import (
    Drafting,
    HostCost,
    StepCosts,
    lookup_cost,
    step_costs,
)
from magicdec.profiles.predict.drafting import PricedRow, drafting_of

TARGET = find_model("llama-3.1-8b")
SMALL = find_model("llama-3.2-1b")
BANDWIDTH = 1e11
#: Bound by reading: what is read is what is paid for.
READER = Hardware(
    Device("reader", 8e10, BANDWIDTH, 1e18),
    constants=Constants(bandwidth_efficiency=1.0, layer_s=0.001, step_s=0.002),
)
AT = PricedRow(4000, 32)


def costs(drafter: DraftSpec, model: ModelShape | None = None, rows: int = 2, gamma: int = 4,
          context: float = 4032) -> StepCosts:  # fmt: skip
    return step_costs(
        TARGET, READER, drafting_of(drafter, TARGET, AT, 2, model), rows=rows, context=context,
        gamma=gamma,
    )  # fmt: skip


def test_layers_cost_their_share_of_a_draft_and_the_head():
    whole = costs(DraftSpec("snapkv", (), 256))
    half = costs(DraftSpec("snapkv", (), 256, draft=f"layers:{TARGET.layers // 2}"))
    head = TARGET.vocab * TARGET.hidden * 2 / BANDWIDTH
    assert float(half.draft) - head == pytest.approx((float(whole.draft) - head) / 2, rel=1e-3)
    assert half.verify == whole.verify


def test_a_draft_model_has_its_own_shape_and_cache():
    full = costs(DraftSpec("full", draft="small", draft_kv="full"), SMALL)
    bounded = costs(DraftSpec("snapkv", (), 256, draft="small"), SMALL)
    read = float(full.draft_pass.kv - bounded.draft_pass.kv) * BANDWIDTH / 2
    entries = read / SMALL.kv_bytes_per_token(2)
    assert entries == pytest.approx(4032 - (256 + 32))
    assert float(full.draft_pass.weights) == pytest.approx(SMALL.streamed * 2 / BANDWIDTH)
    # A draft begins with a pass over two tokens: five tokens in four passes.
    one = step_costs(
        TARGET, READER, Drafting(budget=None, model=SMALL), rows=2, context=4032, gamma=4
    )
    assert float(full.draft_pass.gemm / one.draft_pass.gemm) == pytest.approx(5 / 4)


def test_a_draft_model_sees_no_more_than_its_window():
    short = replace(SMALL, max_position=1000)
    drafting = drafting_of(DraftSpec("full", draft="small", draft_kv="full"), TARGET, AT, 2, short)
    assert drafting.budget == 1000


def test_lookup_costs_the_hosts_search_once_a_step():
    drafting = Drafting(budget=None, host=HostCost(1e-4, 1e-7))
    for gamma in (1, 4):
        found = step_costs(TARGET, READER, drafting, rows=[1, 3], context=1000, gamma=gamma)
        step = found.step(gamma) - found.verify
        np.testing.assert_allclose(step, np.array([1, 3]) * 2e-4 + 0.002)
    kept = memory(TARGET, READER, drafting, context=1000, gamma=4)
    assert kept.draft_weights == 0 and float(kept.draft_kv_row) == 0
    measured = lookup_cost()
    assert 0 < measured.fixed_s + 4000 * measured.token_s < 1


def test_an_early_exit_stores_no_weights_of_its_own():
    drafting = drafting_of(DraftSpec("snapkv", (), 256, draft="layers:4"), TARGET, AT, 2)
    kept = memory(TARGET, READER, drafting, context=4000)
    assert kept.draft_weights == 0
    assert float(kept.draft_kv_row) == pytest.approx(
        (256 + 32) * TARGET.kv_bytes_per_token(2) * 4 / TARGET.layers
    )


@dataclass(frozen=True)
class Searching(KVSelector):
    """Reads keys again and again."""

    draft: float = 0.0
    verify: float = 0.0

    def select(self, keys: object, queries: object, budget: int) -> object:  # type: ignore[override]
        raise AssertionError("pricing must not select")

    def search(self, head_dim: int = 128, element_size: int = 2) -> Search:
        return Search(once=0.5, per_draft=self.draft, per_verify=self.verify)


@pytest.mark.parametrize("rows", [1, 8])
def test_what_a_selector_searches_is_paid_for(monkeypatch, rows):
    monkeypatch.setattr(
        "magicdec.engine.selection.SELECTORS.create",
        lambda name, options: Searching(**options),
    )

    def priced(**search: float) -> StepCosts:
        return costs(DraftSpec("any", tuple(search.items()), 256), rows=rows)

    token = rows * 4032 * TARGET.kv_bytes_per_token(2) / BANDWIDTH  # seconds for every entry
    idle, draft, verify = priced(), priced(draft=1 / 16), priced(verify=1 / 4)
    assert float(idle.search) == 0 and float(idle.rest) == 0.002
    assert float(draft.search) == pytest.approx(token / 16, rel=1e-3)
    assert float(draft.step(4) - idle.step(4)) == pytest.approx(4 * token / 16, rel=1e-3)
    assert float(verify.rest) == pytest.approx(0.002 + token / 4, rel=1e-3)
    assert float(verify.step(4) - idle.step(4)) == pytest.approx(token / 4, rel=1e-3)
