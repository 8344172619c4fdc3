"""A tuning as JSON-ready data. What is not known is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.tuning.candidate import Candidate, Objective
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.ranking import Measured
from magicdec.profiles.tuning.recommend import recommend

TUNE_SCHEMA = "magicdec.tune/1"


def tune_record(
    answers: Sequence[Answer],
    objective: Objective,
    *,
    env: Mapping[str, object],
    config: Mapping[str, object],
    calibrated: str | None,
    commands: Sequence[str | None],
    notes: Sequence[str],
    interrupted: bool,
    error: str | None,
) -> dict[str, Any]:
    """The document of `tune --format json`. commands: one for each answer."""
    return {
        "schema": TUNE_SCHEMA,
        "env": dict(env),
        "config": dict(config),
        "objective": {
            "goal": objective.goal,
            "max_tpot_ms": None if objective.max_tpot is None else objective.max_tpot * 1e3,
        },
        "calibration": calibrated,
        "contexts": [
            _answer(answer, objective, command)
            for answer, command in zip(answers, commands, strict=True)
        ],
        "notes": list(notes),
        "interrupted": interrupted,
        "error": error,
    }


def _answer(answer: Answer, objective: Objective, command: str | None) -> dict[str, Any]:
    found = recommend(answer, objective)
    recommended = None
    if found is not None:
        recommended = {
            "speculate": found.speculate,
            "batch": found.place.batch,
            **_candidate(found.candidate),
            "within_max_tpot": found.reachable,
            "proven": found.measured is not None,
            "speedup": found.speedup,
            "command": command,
            "reasons": list(found.reasons),
        }
    ranking = answer.ranking(objective)
    ordered = list(ranking.ordered) if ranking else []
    left = [option for option in answer.options if not option.memory.fits]
    return {
        "context": answer.context,
        "surveyed_rows": answer.rows,
        "recommended": recommended,
        "predicted": [_option(option) for option in (*ordered, *left)],
        "measured": [_measured(one, answer) for one in answer.measured()],
        "left_out": [what for each in answer.verifications for what in each.left_out],
        "not_tried": [what for each in answer.verifications for what in each.not_tried],
        "measured_by_predicted": asdict(answer.factors()),
        "around": [
            {"context": option.place.context, **_option(corrected(option, answer.factors()))}
            for option in answer.around
        ],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    """Members of a drafter are null for plain decoding."""
    drafter = candidate.drafter
    known = dict.fromkeys(DraftSpec(None).json) if drafter is None else drafter.json
    return known | {"gamma": candidate.gamma}


def _option(option: Option) -> dict[str, Any]:
    price = {"plain": option.price.plain}
    if not option.candidate.plain:
        price |= {name: getattr(option.price, name) for name in ("draft", "verify", "rest")}
        price["select"] = option.once
    return {
        "batch": option.place.batch,
        **_candidate(option.candidate),
        "speedup": option.speedup,
        "speedup_interval": option.range,
        "tokens_per_s": option.tokens_per_s,
        "tpot_ms": option.tpot * 1e3,
        "mean_acceptance_length": None if option.candidate.plain else option.length,
        "mean_acceptance_length_interval": option.interval,
        "acceptance_rate_per_position": list(option.per_position),
        "step_ms": {name: seconds * 1e3 for name, seconds in price.items()},
        "memory_bytes": option.memory.needed,
        "fits": option.memory.fits,
    }


def _measured(one: Measured, answer: Answer) -> dict[str, Any]:
    """builds_on: of a variant, which is not among the predicted."""
    variant = answer.variant_of(one)
    return {
        "batch": one.place.batch,
        **_candidate(one.candidate),
        "speedup": one.speedup,
        "speedups": list(one.speedups),
        "tokens_per_s": [sample.tokens_per_s for sample in one.samples],
        "tpot_ms": [tpot * 1e3 for tpot in one.tpots],
        "beats_plain": one.beats_plain,
        "builds_on": None if variant is None else _candidate(variant.base.candidate),
    }
