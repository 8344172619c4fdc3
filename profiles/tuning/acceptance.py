"""From a survey to the evidence that candidates are priced by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.drafter import draft_weights
from magicdec.profiles.costs.acceptance import pooled
from magicdec.profiles.survey.intervals import length_interval
from magicdec.profiles.survey.surveying import Surveyed
from magicdec.profiles.tuning.evidence import Evidence


def weighted(
    drafters: Sequence[DraftSpec], kinds: Sequence[DraftWeights], config: DecodeConfig,
    device: torch.device, dtype: torch.dtype,
) -> list[DraftSpec]:  # fmt: skip
    """Every drafter with every kind of weights; none named: all that `auto` would choose among.

    Raises ConfigError for int8 where it cannot be had.
    """
    found = []
    for drafter in drafters:
        base = config.drafted_by(drafter, 1)
        asked = [replace(base, draft_weights=kind) for kind in kinds or ("auto", "same")]
        wanted = [draft_weights(each, device, dtype) for each in asked]
        found += [replace(drafter, draft_weights=kind) for kind in dict.fromkeys(wanted)]
    return found


def evidence(surveyed: Surveyed, gamma: int) -> Evidence:
    walks = surveyed.walks(gamma)
    every = pooled(walks)
    tokens = tuple(len(row) for row in surveyed.kept)
    # Each token of a row is an accepted draft or the one that its step adds.
    steps = tuple(
        count - float(sum(walk.accepted)) for count, walk in zip(tokens, walks, strict=True)
    )
    if surveyed.texts:
        emitted, taken = sum(tokens), sum(steps)
        length, share = (emitted / taken, every.steps / taken) if taken else (1.0, 0.0)
        return Evidence(gamma, tokens, steps, length, None, every.shares, share)
    interval = length_interval(walks)
    return Evidence(gamma, tokens, steps, every.mean_length, interval, every.shares)
