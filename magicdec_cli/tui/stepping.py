"""The knobs of the app, and what [ and ] make of their values. Ranges are the knob table's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magicdec.cli.knob import Knob
from magicdec.cli.knobs import KNOBS, Settings
from magicdec.engine.config import LOOKUP, SELF
from magicdec.engine.errors import ConfigError
from magicdec.engine.selectors.base import SELECTORS

#: Those that come first. Whatever else has a label in the knob table follows.
ORDER = (
    "batch", "context", "budget", "gamma", "draft", "selector", "temperature", "draft_weights",
)  # fmt: skip
#: Values of a text knob that are worth offering, by its name.
Offers = Mapping[str, Callable[[], Sequence[str]]]
OFFERS: Offers = {"selector": SELECTORS.names, "draft": lambda: (SELF, LOOKUP)}
OTHERS = {
    "selector": "or package.module:Class", "draft": "or layers:N, a model, or a cascade",
}  # fmt: skip
SMALL = 64  # up to here integers step by one, larger ranges by powers of two
USUAL, WIDEST = 6, 9  # columns: of a value with a range, and of the longest choice
TENTH = 0.1
LEAST_BUDGET = 32  # of a sweep; with less some selectors have no choice left


Change = Callable[[Settings], Settings]


@dataclass(frozen=True, slots=True)
class TuiKnob:
    """A knob of the table as the app shows it."""

    knob: Knob
    label: str
    offered: Callable[[], Sequence[str]] | None = None

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
        return self.knob.choices if self.offered is None else tuple(self.offered())

    @property
    def other(self) -> str:
        """What may be typed besides the choices; empty when nothing may."""
        return "" if self.knob.choices else OTHERS.get(self.name, "or another value")

    @property
    def width(self) -> int:
        """Of its usual values."""
        if self.choices:
            return min(max(map(len, self.choices)), WIDEST)
        return USUAL if self.geometric or self.knob.kind == "float" else len(str(SMALL))

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


def tui_knobs(gamma: str = "γ", offers: Offers = OFFERS) -> tuple[TuiKnob, ...]:
    """`gamma`: how the terminal writes it."""
    # The app takes numbers alone.
    table = {knob.name: dataclasses.replace(knob, words=()) for knob in KNOBS if knob.label}
    names = dict.fromkeys((*(name for name in ORDER if name in table), *table))
    return tuple(
        TuiKnob(table[name], gamma if table[name].label == "γ" else table[name].label,
                offers.get(name))
        for name in names
    )  # fmt: skip


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
