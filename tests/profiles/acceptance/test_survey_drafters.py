"""A survey of drafters that are not the model over a selection says what their runs then do."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.engine import Engine
from magicdec.engine.report import Recorder
from magicdec.engine.request import Request
from magicdec.kernels.backends import get_backend
from magicdec.profiles.acceptance.rates import pooled
from magicdec.profiles.acceptance.survey import Survey
from magicdec.profiles.tuning.tuner import evidence

CPU = torch.device("cpu")
LOOKUP = DraftSpec(None, draft="lookup")
DRAFTERS = [
    LOOKUP,
    DraftSpec("snapkv", (), 40, draft="layers:1"), DraftSpec("streaming", (), 24, draft="layers:1"),
    DraftSpec("full", draft="layers:1"),
    DraftSpec("full", draft="other"),
    DraftSpec("snapkv", (), 40, draft="other"), DraftSpec("streaming", (), 24, draft="other"),
]  # fmt: skip
drafters = pytest.mark.parametrize("drafter", DRAFTERS, ids=[d.way for d in DRAFTERS])


class TinyDrafts:
    def __init__(self, draft) -> None:
        self._draft = draft

    def model(self, config):
        return self._draft if config.who.model else None

    def spec(self, config):
        return self._draft.spec if config.who.model else None


class TinySession:
    """As much of a session as a survey uses, with a draft model."""

    def __init__(self, model, draft, tokenizer) -> None:
        self.model, self.device, self.dtype = model, CPU, torch.float32
        self.drafts, self._tokenizer = TinyDrafts(draft), tokenizer

    def run(self, requests, config, *, batch, observed=0):
        longest = max(len(request.tokens) for request in requests)
        self.engine = Engine(
            self.model, self._tokenizer, get_backend("sdpa", CPU), slots=batch,
            capacity=longest + config.max_new_tokens + 33,
        )  # fmt: skip
        draft = self.drafts.model(config)
        yield from self.engine.run(requests, config, draft, observed=observed)

    @property
    def cache(self):
        return self.engine.cache

    def require_intact(self):
        """No file is behind it."""


@pytest.fixture
def session(tiny, tokenizer):
    """The draft model is the target with other weights in its last layer's way: often right."""
    return TinySession(tiny().ours, tiny(num_hidden_layers=1).ours, tokenizer)


@pytest.fixture
def requests(prompt):
    """Of words that come again, so that lookup has something to find."""
    return [
        Request(f"doc{i}", (prompt(length) * 3)[:length + 20], i)
        for i, length in enumerate((50, 70, 30))
    ]  # fmt: skip


def settings(**changes):
    return DecodeConfig(
        max_new_tokens=32, ignore_eos=True, draft_weights="same", **changes
    )  # fmt: skip


def surveyed(session, requests, config, drafter, **options):
    survey = Survey(session, requests, config, [drafter], **options)
    survey.trace(lambda event: None)
    (found,) = survey.results()
    return found


def really(session, requests, config):
    recorder = Recorder()
    for event in session.run(requests, config, batch=len(requests)):
        recorder.add(event)
    return recorder.report()


@drafters
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_steps_of_one_draft_token_are_replayed_exactly(session, requests, drafter, penalty):
    config = settings(sampling=SamplingConfig(repetition_penalty=penalty))
    found = surveyed(session, requests, config, drafter, block=1)
    real = really(session, requests, config.drafted_by(drafter, 1))
    both = pooled(found.walks(1))
    assert both.drafted == (real.num_spec_steps,)
    assert both.accepted == (real.num_accepted_draft_tokens,)
    assert [len(row) for row in found.kept] == [31] * 3


@drafters
def test_longer_drafts_come_near(session, requests, drafter):
    found = surveyed(session, requests, settings(), drafter)
    real = really(session, requests, settings().drafted_by(drafter, 3))
    both = pooled(found.walks(3))
    exact = drafter is LOOKUP or drafter.draft_kv == "full"
    length = pytest.approx(real.mean_acceptance_length or 1.0, rel=1e-9 if exact else 0.12)
    assert both.mean_length == length
    known = evidence(found, 3)
    assert known.tokens == (31,) * 3 and sum(known.steps) <= 93
    if drafter is LOOKUP:
        steps = sum(row.steps for row in real.rows)
        assert sum(known.steps) == steps and known.drafting == real.num_spec_steps / steps
        assert known.length == pytest.approx(93 / steps)
    else:
        assert known.drafting == 1.0


@pytest.mark.parametrize("drafter", [LOOKUP, DRAFTERS[3], DRAFTERS[4]], ids=lambda d: d.way)
def test_sampled_text_too(session, requests, drafter):
    """The survey's text is that of its own run; its expectation is held to many runs' mean."""
    config = settings(sampling=SamplingConfig(0.8, seed=5))
    many = [Request(r.document, r.tokens, i) for i, r in enumerate(requests * 8)]
    found = surveyed(session, many, config, drafter, block=1)
    real = really(session, many, config.drafted_by(drafter, 1))
    assert pooled(found.walks(1)).mean_length == pytest.approx(
        real.mean_acceptance_length or 1.0, abs=0.12
    )
