"""The default model on a real document: lengths within 3% of those of real runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.report import Recorder
from magicdec.engine.session import open_session
from magicdec.engine.text.documents import read_documents
from magicdec.profiles.acceptance.record import estimates
from magicdec.profiles.acceptance.survey import Survey

pytestmark = pytest.mark.slow

NOVEL = Path(__file__).parents[4] / "shared" / "data" / "books" / "dracula.txt"
GAMMAS = (2, 4)


def test_lengths_are_those_of_real_runs():
    """Pooled over all settings: that of one has a rejected token more or less by chance."""
    session = open_session("smollm2-135m")
    source = str(NOVEL) if NOVEL.exists() else "builtin:pydoc"
    requests = session.requests(read_documents([source]), context=600, batch=4)
    config = DecodeConfig(max_new_tokens=128, ignore_eos=True)
    drafters = [
        DraftSpec(name, budget=budget) for name in ("snapkv", "streaming") for budget in (64, 256)
    ]
    survey = Survey(session, requests, config, drafters)
    survey.trace(lambda event: None)
    ratios = []
    for found in survey.results():
        for estimate in estimates(found, GAMMAS):
            recorder = Recorder()
            run = config.drafted_by(found.drafter, estimate.gamma)
            for event in session.run(requests, run, batch=4):
                recorder.add(event)
            ratios.append(estimate.length / recorder.tally().mean_acceptance_length)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.03)
    assert max(abs(np.array(ratios) - 1)) < 0.1
