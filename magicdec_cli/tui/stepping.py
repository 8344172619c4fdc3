"""The knobs of the app, and what [ and ] make of their values. Ranges are the knob table's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from magicdec.cli.knob import Knob
from magicdec.cli.knobs import KNOBS, Settings
from magicdec.engine.errors import ConfigError
from magicdec.engine.selectors.base import SELECTORS

#: In the order of the panel, with the labels it has room for.
LABELS = {
    "batch": "batch", "context": "context", "budget": "budget", "gamma": "γ",
    "max_new_tokens": "new tokens", "selector": "selector", "temperature": "T",
    "draft_weights": "draft weights",
}  # fmt: skip
SMALL = 64  # up to here integers step by one, larger ranges by powers of two
TENTH = 0.1
LEAST_BUDGET = 32  # of a sweep; with less some selectors have no choice left


@dataclass(frozen=True, slots=True)
class TuiKnob:
    """A knob of the table as the app shows it."""

    knob: Knob
    label: str

    @property
    def name(self) -> str:
        return self.knob.name

    @property
    def numeric(self) -> bool:
        return self.knob.kind in ("int", "float")

    @property
    def geometric(self) -> bool:
        """Whether its values are spread over powers of two."""
        return self.knob.kind == "int" and (self.knob.high or 0) > SMALL

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(SELECTORS.names()) if self.name == "selector" else self.knob.choices

    def text(self, settings: Settings) -> str:
        value = getattr(settings, self.name)
        if value is None:
            return "all"
        if self.name == "temperature":
            return "greedy" if value == 0 else f"{value:g}"
        return f"{value:,}" if self.knob.kind == "int" else str(value)

    def set(self, settings: Settings, text: str) -> Settings:
        """Raises ConfigError for a value that the knob, or the other settings, do not admit."""
        text = text.strip().replace(",", "") if self.numeric else text.strip()
        value: Any
        if self.knob.unset and text in ("", "all"):
            value = None
        elif self.name == "temperature" and text == "greedy":
            value = 0.0
        else:
            value = self.knob.parse(text, self.label)
        return self.put(settings, value)

    def put(self, settings: Settings, value: Any) -> Settings:
        changed = dataclasses.replace(settings, **{self.name: value})
        if self.name == "temperature" and value == 0:  # what only sampling has must not stay
            changed = dataclasses.replace(changed, top_k=0, top_p=1.0, min_p=0.0, seed=None)
        changed.decode_config()
        if self.name == "selector":
            SELECTORS.load(str(value))
        return changed

    def step(self, settings: Settings, up: bool) -> Settings:
        """The next value up or down, or the same settings at the end of the range."""
        try:
            return self.put(settings, self._next(getattr(settings, self.name), up))
        except ConfigError:
            return settings

    def _next(self, value: Any, up: bool) -> Any:
        if self.choices:
            place = self.choices.index(value) if value in self.choices else -1
            return self.choices[(place + (1 if up else -1)) % len(self.choices)]
        low, high = self.knob.low or 0, self.knob.high or 0
        if self.knob.kind == "float":
            return min(max(round(value + (TENTH if up else -TENTH), 3), low), high)
        if value is None:
            return None
        if self.geometric:
            wanted = 1 << (value.bit_length() if up else max((value - 1).bit_length() - 1, 0))
        else:
            wanted = value + (1 if up else -1)
        return int(min(max(wanted, low), high))


def tui_knobs(gamma: str = "γ") -> tuple[TuiKnob, ...]:
    """`gamma`: how the terminal writes it."""
    table = {
        knob.name: dataclasses.replace(knob, words=()) for knob in KNOBS
    }  # the app takes numbers
    labels = {name: gamma if label == "γ" else label for name, label in LABELS.items()}
    return tuple(TuiKnob(table[name], label) for name, label in labels.items())


def around(knob: TuiKnob, settings: Settings, count: int = 7) -> list[float]:
    """Values of a numeric knob around its own, as many below as above where the range allows."""
    value = getattr(settings, knob.name)
    if value is None:
        return []
    low, high = knob.knob.low or 0, knob.knob.high or 0
    if knob.name == "gamma":
        return [float(gamma) for gamma in range(1, count + 1)]
    if knob.name == "temperature":
        return [round(0.2 * i, 1) for i in range(count - 1)]
    if knob.name == "budget" and settings.context is not None:
        high = max(settings.context, value)  # beyond it the draft sees all anyway
        low = min(LEAST_BUDGET, value)
    base = 1 << max(int(value).bit_length() - 1, 0)
    half = count // 2
    above = sum(base * 2**power <= high for power in range(1, half + 1))
    values = [base * 2.0**power for power in range(-(count - 1 - above), above + 1)]
    return sorted({v for v in (*values, float(value)) if low <= v <= high})
