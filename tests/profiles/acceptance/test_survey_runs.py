"""A survey says what real speculative runs then do; on tiny random models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.engine import Engine
from magicdec.engine.errors import ConfigError
from magicdec.engine.report import Recorder
from magicdec.engine.request import Request
from magicdec.engine.selectors.snapkv import SnapKV
from magicdec.kernels.backends import get_backend
from magicdec.profiles.acceptance.rates import pooled
from magicdec.profiles.acceptance.record import estimates, survey_record
from magicdec.profiles.acceptance.survey import Survey

CPU = torch.device("cpu")
NEW = 48
PENALISED = SamplingConfig(repetition_penalty=1.3, frequency_penalty=0.8)


class TinySession:
    """As much of a session as a survey uses."""

    def __init__(self, model, tokenizer, kv_dtype=None) -> None:
        self.model, self.device, self.dtype = model, CPU, torch.float32
        self._tokenizer, self._kv_dtype = tokenizer, kv_dtype

    def run(self, requests, config, *, batch, observed=0):
        longest = max(len(request.tokens) for request in requests)
        self.engine = Engine(
            self.model, self._tokenizer, get_backend("sdpa", CPU), slots=batch,
            capacity=longest + config.max_new_tokens + 33, kv_dtype=self._kv_dtype,
        )  # fmt: skip
        yield from self.engine.run(requests, config, observed=observed)

    @property
    def cache(self):
        return self.engine.cache

    def require_intact(self):
        """No file is behind it."""


@pytest.fixture
def session(tiny, tokenizer):
    return TinySession(tiny().ours, tokenizer)


@pytest.fixture
def requests(prompt):
    return [Request(f"doc{i}", prompt(length), i) for i, length in enumerate((90, 120, 70, 100))]


def settings(**changes):
    changes = {"max_new_tokens": NEW, "ignore_eos": True, "draft_weights": "same", **changes}
    return DecodeConfig(**changes)


def surveyed(session, requests, config, drafters, **options):
    survey = Survey(session, requests, config, drafters, **options)
    survey.trace(lambda event: None)
    return list(survey.results())


def really(session, requests, config):
    recorder = Recorder()
    for event in session.run(requests, config, batch=len(requests)):
        recorder.add(event)
    return recorder.report()


DRAFTERS = [
    DraftSpec("snapkv", (), 40), DraftSpec("snapkv", (("window", 8),), 64),
    DraftSpec("streaming", (), 24), DraftSpec("streaming", (("sinks", 1),), 64),
    DraftSpec("window", (), 24), DraftSpec("full"), DraftSpec("topk", (), 24),
    DraftSpec("quest", (("page", 4),), 24), DraftSpec("reuse", (("recent", 8),), 24),
    DraftSpec("pqcache", (("sinks", 4), ("recent", 8)), 24),
]  # fmt: skip


@pytest.mark.parametrize("kv_dtype", [None, torch.bfloat16], ids=["f32", "bf16"])
def test_steps_of_one_draft_token_are_replayed_exactly(session, requests, kv_dtype):
    """The window rolls over everything it held: the text is twice as long as its budget."""
    session._kv_dtype = kv_dtype
    for found in surveyed(session, requests, settings(), DRAFTERS, block=1):
        real = really(session, requests, settings().drafted_by(found.drafter, 1))
        both = pooled(found.walks(1))
        assert both.drafted == (real.num_spec_steps,)
        assert both.accepted == (real.num_accepted_draft_tokens,), found.drafter


def test_penalties_count_the_text_as_a_run_does(session, requests):
    config = settings(sampling=PENALISED)
    for found in surveyed(session, requests, config, DRAFTERS, block=1):
        real = really(session, requests, config.drafted_by(found.drafter, 1))
        both = pooled(found.walks(1))
        assert both.accepted == (real.num_accepted_draft_tokens,), found.drafter


def test_penalised_samples_are_kept_by_a_draft_that_sees_everything(session, requests):
    config = settings(sampling=dataclasses.replace(PENALISED, temperature=2.0))
    (found,) = surveyed(session, requests, config, [DraftSpec("full")])
    assert all(np.allclose(row, 1.0, atol=1e-3) for row in found.kept)


@pytest.mark.parametrize("gamma", [2, 4])
def test_longer_drafts_come_near_in_blocks(session, requests, gamma):
    """Drafts of a random model hang by a hair: single tokens differ, the length hardly does."""
    for found in surveyed(session, requests, settings(), DRAFTERS):
        real = really(session, requests, settings().drafted_by(found.drafter, gamma))
        length = pooled(found.walks(gamma)).mean_length
        assert length == pytest.approx(real.mean_acceptance_length, rel=0.12), found.drafter


def test_the_whole_cache_drafts_without_a_miss_and_is_left_as_it_was(session, requests):
    survey = Survey(session, requests, settings(), [DraftSpec("full"), DraftSpec("window", (), 16)])
    survey.trace(lambda event: None)
    before = session.cache.k.clone()
    full, window = survey.results()
    assert full.alpha == 1.0
    assert full.weights == "same"
    assert window.alpha is not None and window.alpha < 1.0
    for row, request in enumerate(requests):
        used = slice(0, len(request.tokens) + NEW - 1)
        assert torch.equal(session.cache.k[:, row, :, used], before[:, row, :, used])


def test_sampling_accepts_as_often_as_real_runs(session, prompt):
    many = [Request(f"doc{i}", prompt(60, i), i) for i in range(40)]
    config = settings(sampling=SamplingConfig(temperature=2.0, top_k=60, seed=3))
    for found in surveyed(session, many, config, [DraftSpec("streaming", (), 24)], block=4):
        real = really(session, many, config.drafted_by(found.drafter, 3))
        both = pooled(found.walks(3))
        assert 0.2 < found.alpha < 0.95
        rates = both.shares
        assert rates == pytest.approx(real.acceptance_rate_per_position, abs=0.06)
        assert both.mean_length == pytest.approx(real.mean_acceptance_length, rel=0.05)


def test_rows_of_the_same_prompt_keep_their_own_sampled_text(session, prompt):
    same = [Request(f"doc{i}", prompt(60), i) for i in range(3)]
    config = settings(sampling=SamplingConfig(temperature=2.0))
    (found,) = surveyed(session, same, config, [DraftSpec("full")])
    # The whole cache is the target itself: every token of every row is kept.
    assert all(np.allclose(row, 1.0, atol=1e-3) for row in found.kept)


def test_rows_may_end_early_and_at_once(session, tiny, tokenizer, requests):
    everything = settings(max_new_tokens=1)
    (found,) = surveyed(session, requests, everything, [DraftSpec("snapkv", (), 40)])
    assert found.alpha is None
    assert [each.length for each in estimates(found, (1, 4))] == [1.0, 1.0]

    report = really(session, requests, settings(gamma=0))
    stop = report.rows[1].text.split()[9]
    (found,) = surveyed(session, requests, settings(stop=(stop,)), [DraftSpec("snapkv", (), 40)])
    assert len(found.kept[1]) < NEW - 1
    assert len({len(row) for row in found.kept}) > 1


def test_a_selector_may_look_at_more_queries_than_are_kept_anyway(session, prompt):
    long = [Request("doc", prompt(200), 0)]
    wide = DraftSpec("snapkv", (("window", 100),), 120)
    narrow = DraftSpec("snapkv", (), 130)  # traced: the widest budget
    found = surveyed(session, long, settings(), [wide, narrow], block=1)
    real = really(session, long, settings().drafted_by(wide, 1))
    assert pooled(found[0].walks(1)).accepted == (real.num_accepted_draft_tokens,)


def test_a_prompt_is_scored_once_for_all_budgets(session, requests, monkeypatch):
    calls, score = [], SnapKV.score
    monkeypatch.setattr(
        SnapKV, "score", lambda self, keys, queries: calls.append(1) or score(self, keys, queries)
    )
    drafters = [DraftSpec("snapkv", budget=budget) for budget in (20, 40, 60)]
    together = surveyed(session, requests, settings(), drafters)
    once = session.model.spec.layers * len(requests)
    assert len(calls) == 2 * once, "by the run, and by the survey"
    for drafter, found in zip(drafters, together, strict=True):
        (alone,) = surveyed(session, requests, settings(), [drafter])
        for row, same in zip(found.kept, alone.kept, strict=True):
            np.testing.assert_array_equal(row, same)


def test_a_drafter_that_cannot_work_is_refused_before_anything_runs(session, requests):
    with pytest.raises(ConfigError, match="budget 4 leaves no room beside 4 sinks"):
        Survey(session, requests, settings(), [DraftSpec("streaming", (), 4)])


def test_the_record_has_every_drafter_and_draft_length(session, requests):
    survey = Survey(session, requests, settings(), DRAFTERS[:2])
    report = survey.trace(lambda event: None)
    results = list(survey.results())
    record = survey_record(results, (1, 3), report, env={}, config={}, seconds=1.0)
    assert [d["budget"] for d in record["drafters"]] == [40, 64]
    for drafter, result in zip(record["drafters"], results, strict=True):
        assert drafter["alpha"] == result.alpha
        for each in drafter["by_gamma"]:
            assert len(each["acceptance_rate_per_position"]) == each["gamma"]
            assert each["mean_acceptance_length"] == pytest.approx(
                1 + sum(each["acceptance_rate_per_position"]), rel=0.1
            )
            low, high = each["interval"]
            assert low <= each["mean_acceptance_length"] <= high
