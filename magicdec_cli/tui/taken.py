"""What the steps of a run took, beside what was priced for them: the next forecast goes by it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from magicdec.cli.knobs import Settings
from magicdec.engine.report import Tally
from magicdec.engine.selection import chosen_once
from magicdec.profiles.costs.step_times import Factors, StepTimes, factors


@dataclass(frozen=True, slots=True)
class Taken:
    """What corrects a price, and seconds of what has none.

    ends: of the speedup, what is left where some rows end before others; once: selection per row
    and prompt token, of `selector`; of others it is not known.
    """

    run: int
    factors: Factors
    rest: float
    ends: float
    once: float
    selector: str

    @classmethod
    def of(
        cls, run: int, settings: Settings, context: int, omega: float, price: StepTimes[float],
        plain: Tally, drafted: Tally,
    ) -> Taken | None:  # fmt: skip
        """From a finished run. None where a pass had no steps."""
        if not (plain.steps and drafted.steps and plain.tokens_per_s and drafted.tokens_per_s):
            return None
        phases, steps, gamma = drafted.phases, drafted.steps, settings.gamma
        static = chosen_once(settings.selector)
        mine = StepTimes(
            plain.decode_seconds / plain.steps,
            (phases.draft + (0.0 if static else phases.select)) / steps / gamma,
            phases.verify / steps,
            phases.select / steps if static else 0.0,
            (phases.commit + phases.other) / steps,
        )
        return cls(
            run, factors([("", price, mine)]), mine.rest,
            drafted.tokens_per_s / plain.tokens_per_s / mine.speedup(gamma, omega),
            mine.select / _selected(settings, context, omega), settings.selector,
        )  # fmt: skip

    def put(
        self, price: StepTimes[float], settings: Settings, context: int, omega: float
    ) -> StepTimes[float]:
        """The price as this run had it."""
        known = settings.selector == self.selector
        return replace(
            self.factors.corrected(price, ""), rest=self.rest,
            select=self.once * _selected(settings, context, omega) if known else 0.0,
        )  # fmt: skip


def _selected(settings: Settings, context: int, omega: float) -> float:
    """Prompt tokens of all rows that are selected from, by the step."""
    return settings.batch * context * omega / max(settings.max_new_tokens - 1, 1)
