"""A run's prediction: made before it from this machine's calibration, judged after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magicdec.cli.settings.knobs import Settings
from magicdec.engine.errors import MagicdecError
from magicdec.engine.report import RunReport
from magicdec.engine.request import Request
from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.calibration.calibration import Calibration, fingerprint_of
from magicdec.profiles.calibration.store import load_calibration
from magicdec.profiles.costs.catalog import find_model
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.predict.run import (
    Seconds,
    Term,
    Work,
    assume,
    error_terms,
    expected_of_lookup,
    measured_seconds,
    observed,
    predict_run,
)

HINT = "no calibration of {model} here: `magicdec calibrate` would let runs be predicted"


@dataclass(frozen=True, slots=True)
class Judged:
    """A prediction beside its run. Errors are predicted ÷ measured − 1, None without a plain run.

    `own` is predicted with the acceptance that the run turned out to have.
    """

    own: Seconds
    measured: Seconds
    error: float | None
    own_error: float | None
    terms: list[Term]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was predicted, and from what."""

    calibration: Calibration
    work: Work
    assumed: AcceptanceRates
    seconds: Seconds

    @property
    def sentence(self) -> str:
        unnamed = self.calibration.unnamed
        of = f", which names no {unnamed}" if unnamed else ""
        return (
            f"predicted decode speedup {self.seconds.speedup:.2f}× (calibration of "
            f"{self.calibration.created[:10]}{of}; acceptance {self.assumed.source})"
        )

    def judge(self, report: RunReport, baseline: RunReport | None) -> Judged | None:
        """None for a run that is not finished or drafted nothing."""
        acceptance = observed(report)
        if acceptance is not None and self.work.drafter.kind == "lookup":
            steps = sum(row.steps for row in report.rows)
            acceptance = dataclasses.replace(acceptance, share=report.num_spec_steps / steps)
        if not report.finished or acceptance is None or not report.decode_seconds:
            return None
        if baseline is not None and not baseline.finished:
            baseline = None
        lengths = tuple(len(row.token_ids) for row in report.rows)
        work = dataclasses.replace(self.work, new_tokens=lengths)
        before = predict_run(self.calibration, work, self.assumed)
        own = predict_run(self.calibration, work, acceptance)
        measured = measured_seconds(report, baseline)
        terms = error_terms(before, own, measured)
        if baseline is None or not baseline.decode_tokens:
            return Judged(own, measured, None, None, terms)
        speedup = measured.speedup * report.decode_tokens / baseline.decode_tokens
        return Judged(
            own, measured, self.seconds.speedup / speedup - 1, own.speedup / speedup - 1, terms
        )


def forecast(
    settings: Settings, env: Mapping[str, object], requests: Sequence[Request]
) -> tuple[Prediction | None, str]:
    """The prediction of a run, and a line about it: what it is, or why there is none.

    The line is empty for a run without drafts or one whose γ changes; a calibration that is stale
    is named, not used.
    """
    if settings.gamma == 0 or settings.max_new_tokens < 2 or not settings.predictable:
        return None, ""
    calibration, why_not = usable_calibration(settings, env)
    if calibration is None:
        return None, why_not
    model = None
    if settings.who.model is not None:
        try:
            model = find_model(settings.draft)
        except MagicdecError:
            return None, f"no prediction: the sizes of {settings.draft} are not in the catalogue"
    work = work_of(settings, env, requests, model)
    if work.drafter.kind == "layers":
        return None, f"no prediction: what is accepted of {settings.draft} only a run tells"
    if work.drafter.kind == "lookup":
        prompts = [request.tokens for request in requests]
        assumed = expected_of_lookup(prompts, settings.max_new_tokens, settings.gamma)
    else:
        assumed = assume(calibration, work)
    if settings.decode_config().sampling.penalises:
        assumed = dataclasses.replace(assumed, source=f"{assumed.source}, without penalties")
    found = Prediction(calibration, work, assumed, predict_run(calibration, work, assumed))
    return found, found.sentence


def work_of(
    settings: Settings, env: Mapping[str, object], requests: Sequence[Request],
    model: ModelShape | None = None,
) -> Work:  # fmt: skip
    """A run, as the cost model needs it. model: the draft model's sizes, if another one drafts."""
    drafter = settings.spec(str(env.get("draft_weights", "same")))
    return Work.of(
        drafter, settings.gamma, requests, settings.batch, settings.max_new_tokens, model
    )


def usable_calibration(
    settings: Settings, env: Mapping[str, object]
) -> tuple[Calibration | None, str]:
    """The one that holds for `env`, or a line that says why there is none; it may be empty."""
    fingerprint = fingerprint_of(env)
    model = str(env.get("model", settings.model))
    try:
        calibration = load_calibration(model, fingerprint)
    except MagicdecError as error:
        return None, f"no prediction: {error}"
    if calibration is None:
        return None, HINT.format(model=model) if settings.model == model else ""
    stale = calibration.stale_because(fingerprint)
    if stale:
        return None, (
            f"no prediction: the calibration of {calibration.created[:10]} is stale ({stale}); "
            "run `magicdec calibrate`"
        )
    return calibration, ""


def record(prediction: Prediction | None, judged: Judged | None) -> dict[str, Any] | None:
    """`predicted` of `run --json`; null without a calibration."""
    if prediction is None:
        return None
    found: dict[str, Any] = {
        "decode": prediction.seconds.speedup,
        "error_pct": _percent(judged.error if judged else None),
        "calibrated": prediction.calibration.created,
        "acceptance": {
            "rates": list(prediction.assumed.padded(prediction.work.gamma)),
            "source": prediction.assumed.source,
        },
        "seconds": dataclasses.asdict(prediction.seconds),
    }
    if judged is not None:
        found["with_own_acceptance"] = {
            "decode": judged.own.speedup,
            "error_pct": _percent(judged.own_error),
            "seconds": dataclasses.asdict(judged.own),
        }
        found["explanation"] = judged.terms[0].sentence
        found["terms"] = [dataclasses.asdict(term) for term in judged.terms]
    return found


def _percent(error: float | None) -> float | None:
    return None if error is None else 100 * error
