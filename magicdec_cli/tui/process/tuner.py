"""The Tune action: the question that `magicdec tune` would be asked, and its answer as knobs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Literal

from magicdec.cli.settings.grids import Grids
from magicdec.cli.settings.knobs import DECODE, Settings
from magicdec.cli.tui.process.messages import Learned, TuneEnded
from magicdec.cli.tune.command import question
from magicdec.cli.tune.output import tuned_profile
from magicdec.cli.tune.page import headline
from magicdec.cli.tune.session import TuneOutcome
from magicdec.engine.config import DecodeConfig
from magicdec.engine.gamma.policy import FIXED
from magicdec.profiles.recorded.encode import cell_to_json, header_to_json
from magicdec.profiles.tuning.preparing import config_of
from magicdec.profiles.tuning.pricing import Option

VERIFY, REPEATS = 3, 2  # real runs: candidates and rounds


def asked(settings: Settings, sources: Sequence[str], selectors: Sequence[str]) -> TuneOutcome:
    """Budget, γ and draft weights are open, batch and context as they are set. Raises ConfigError
    for a selector that cannot be tried."""
    own = dataclasses.replace(
        settings, draft=DECODE.draft, draft_kv=DECODE.draft_kv, tree=DECODE.tree,
        gamma_policy=FIXED.name,
    )  # fmt: skip
    grids = Grids(own, {"selector": tuple(selectors)})
    wanted = question(
        grids, {"selector": ",".join(selectors)}, "throughput", None, None, VERIFY, REPEATS
    )
    return TuneOutcome(own, wanted, tuple(sources))


def ended(
    run: int, outcome: TuneOutcome, status: Literal["finished", "stopped", "failed"],
    error: str | None = None,
) -> TuneEnded:  # fmt: skip
    """With what is known, however the tuning ended."""
    profile = tuned_profile(outcome)
    lines: list[object] = []
    if profile is not None:
        lines = [header_to_json(profile.header), *map(cell_to_json, profile.cells)]
    found = next((one for one in outcome.recommendations if one is not None), None)
    report = TuneEnded(
        run, status, error, notes=tuple(outcome.notes), learned=tuple(_learned(outcome)),
        profile=tuple(map(json.dumps, lines)),
    )  # fmt: skip
    if found is None:
        return report
    best = config_of(found.candidate, outcome.question.config)
    return dataclasses.replace(
        report, answer=put(outcome.settings, best), headline=headline(found), reasons=found.reasons
    )


def put(settings: Settings, found: DecodeConfig) -> Settings:
    """The settings with what the tuner decides."""
    decided = dataclasses.replace(settings, gamma=found.gamma, gamma_policy=FIXED.name)
    if found.gamma == 0:
        return decided
    return dataclasses.replace(
        decided, draft=found.draft, draft_kv=found.draft_kv, selector=found.selector,
        selector_option=dict(found.selector_options), budget=found.budget,
        draft_weights=found.draft_weights, tree=found.tree,
    )  # fmt: skip


def _learned(outcome: TuneOutcome) -> Iterator[Learned]:
    """Of each drafter, by its longest draft."""
    longest: dict[object, Option] = {}
    for answer in outcome.answers:
        for option in answer.options:
            known = longest.get(option.candidate.drafter)
            if known is None or known.candidate.gamma < option.candidate.gamma:
                longest[option.candidate.drafter] = option
    for drafter, option in longest.items():
        if drafter is not None and option.per_position:
            config = config_of(option.candidate, outcome.question.config)
            settings = put(outcome.settings, config)
            yield Learned(settings, config.draft_weights, option.per_position)
