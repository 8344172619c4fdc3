"""What the steps of a run took, beside what was priced for them: the next forecast goes by it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from magicdec.cli.knobs import Settings
from magicdec.engine.report import Tally
from magicdec.engine.selection import chosen_once


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of a plain step, one draft step, a verify pass, the rest of a speculative step, and
    in it a share of the selection that comes once per row."""

    plain: float
    draft: float
    verify: float
    rest: float
    once: float = 0.0
    ends: float = 1.0  # of the speedup, what is left where some rows end before others

    def step(self, gamma: int) -> float:
        return gamma * self.draft + self.verify + self.rest + self.once

    def speedup(self, gamma: int, omega: float) -> float:
        return self.ends * omega * self.plain / self.step(gamma)


@dataclass(frozen=True, slots=True)
class Taken:
    """Ratios of measured to priced seconds, and seconds of what has no price.

    once: selection per row and prompt token, of `selector`; of others it is not known.
    """

    run: int
    plain: float
    draft: float
    verify: float
    rest: float
    ends: float
    once: float
    selector: str

    @classmethod
    def of(
        cls, run: int, settings: Settings, context: int, omega: float, price: Price,
        plain: Tally, drafted: Tally,
    ) -> Taken | None:  # fmt: skip
        """From a finished run. None where a pass had no steps."""
        if not (plain.steps and drafted.steps and plain.tokens_per_s and drafted.tokens_per_s):
            return None
        phases, steps, gamma = drafted.phases, drafted.steps, settings.gamma
        static = chosen_once(settings.selector)
        mine = Price(
            plain.decode_seconds / plain.steps,
            (phases.draft + (0.0 if static else phases.select)) / steps / gamma,
            phases.verify / steps,
            (phases.commit + phases.other) / steps,
            phases.select / steps if static else 0.0,
        )
        return cls(
            run, _ratio(mine.plain, price.plain), _ratio(mine.draft, price.draft),
            _ratio(mine.verify, price.verify), mine.rest,
            drafted.tokens_per_s / plain.tokens_per_s / mine.speedup(gamma, omega),
            mine.once / _selected(settings, context, omega), settings.selector,
        )  # fmt: skip

    def put(self, price: Price, settings: Settings, context: int, omega: float) -> Price:
        """The price as this run had it."""
        known = settings.selector == self.selector
        return dataclasses.replace(
            price, plain=price.plain * self.plain, draft=price.draft * self.draft,
            verify=price.verify * self.verify, rest=self.rest, ends=self.ends,
            once=self.once * _selected(settings, context, omega) if known else 0.0,
        )  # fmt: skip


def _selected(settings: Settings, context: int, omega: float) -> float:
    """Prompt tokens of all rows that are selected from, by the step."""
    return settings.batch * context * omega / max(settings.max_new_tokens - 1, 1)


def _ratio(measured: float, priced: float) -> float:
    return measured / priced if measured and priced else 1.0
