"""The knobs of the app, and what [ and ] make of their values. Ranges are the knob table's."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magicdec.cli.settings.knob import Knob
from magicdec.cli.settings.knobs import ADAPTIVE, AUTO, KNOBS, Settings
from magicdec.cli.settings.resolve import gamma_of
from magicdec.engine.draft_spec import LAYERS, LOOKUP, SELF, UNDER_SELF
from magicdec.engine.errors import ConfigError, PluginError
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.selection import SELECTORS, draft_selector

#: Those that come first. Whatever else has a label in the knob table follows.
ORDER = (
    "batch", "context", "budget", "gamma", "draft", "selector", "temperature", "draft_weights",
    "max_new_tokens", "tree", "tree_nodes",
)  # fmt: skip
POLICIES = (ADAPTIVE, AUTO)  # of γ, behind its numbers
OTHERS = {
    "selector": "or package.module:Class",
    "draft": "or layers:N, a model of this vocabulary, or either with +self",
}
SMALL = 64  # up to here integers step by one, larger ranges by powers of two
USUAL, WIDEST = 6, 9  # columns: of a value with a range, and of the longest choice
SHORT = {"draft": 6, "selector": 6, "tree": 4}  # columns of what is usual among long choices
TENTH = 0.1
LEAST_BUDGET = 32  # of a sweep; with less some selectors have no choice left


Change = Callable[[Settings], Settings]


def draft_ways(layers: int | None) -> tuple[str, ...]:
    """Who may draft, as far as a list can say it; layers: those of the model, where known."""
    cascade = f"{LOOKUP}{UNDER_SELF}"
    if layers is None or layers < 2:
        return (SELF, LOOKUP, cascade)
    half, few = f"{LAYERS}{2 * layers // 3}", f"{LAYERS}{max(layers // 5, 1)}"
    return (SELF, LOOKUP, half, cascade, f"{few}{UNDER_SELF}")


#: Values of a text knob that are worth offering, by its name.
Offers = Mapping[str, Callable[[], Sequence[str]]]
OFFERS: Offers = {"selector": functools.cache(SELECTORS.names), "draft": lambda: draft_ways(None)}


def possible(settings: Settings) -> Settings:
    """The same. Raises ConfigError for settings that contradict each other, also in what a run
    would only say once its model is loaded."""
    config = settings.decode_config()
    if config.drafts_trees or config.who.cascades:
        try:
            draft_selector(config)
        except PluginError as error:  # of a stranger's selector: one that cannot be
            raise ConfigError(str(error)) from error
    return settings


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
            return SHORT.get(self.name) or min(max(map(len, self.choices)), WIDEST)
        if self.geometric:
            return min(USUAL, len(str(self.knob.high)))
        return USUAL if self.knob.kind == "float" else len(str(SMALL))

    def applies(self, settings: Settings) -> bool:
        """Whether it means anything beside the others: a tree's nodes need a tree."""
        return self.name != "tree_nodes" or settings.tree != "none"

    def value(self, settings: Settings) -> Any:
        """A number, a text, None for all; of γ the policy where that is not a fixed number."""
        if self.name == "gamma" and settings.gamma_policy != FIXED.name:
            return settings.gamma_policy
        return getattr(settings, self.name)

    def text(self, settings: Settings) -> str:
        value = self.value(settings)
        if value is None:
            return "all"
        if self.name == "temperature":
            return "greedy" if value == 0 else f"{value:g}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    def begins(self, text: str) -> bool:
        """Whether this may become a value of a numeric knob while it is typed."""
        words = [*self.knob.words, *(["all"] if self.knob.unset else [])]
        words += ["greedy"] if self.name == "temperature" else []
        signs = ",." if self.knob.kind == "float" else ","
        number = all(char.isdecimal() or char in signs for char in text)
        return number or any(word.startswith(text) for word in words)

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
        return possible(self.put(settings, value))

    def put(self, settings: Settings, value: Any) -> Settings:
        """Raises ConfigError for values that the engine's settings do not admit; `possible` knows
        the rest."""
        put: dict[str, Any] = {self.name: value}
        if self.name == "gamma":
            put = {"gamma_policy": FIXED.name} | gamma_of(value)
        elif self.name == "temperature" and value == 0:  # what only sampling has must not stay
            put |= {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": None}
        elif self.name == "selector" and value != settings.selector:
            SELECTORS.load(str(value))
            put["selector_option"] = {}  # they were the other one's
        changed = dataclasses.replace(settings, **put)
        changed.decode_config()
        return changed

    def step(self, settings: Settings, up: bool) -> Settings:
        """The next value up or down, or the same settings at the end of the range.

        Choices that the other settings do not admit are passed over. Raises ConfigError where they
        admit none.
        """
        value, refused = self.value(settings), None
        for _ in range(max(len(self.choices) - 1, 1)):
            value = self._next(value, up)
            try:
                return possible(self.put(settings, value))
            except ConfigError as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def _next(self, value: Any, up: bool) -> Any:
        by = 1 if up else -1
        if self.choices:
            if value not in self.choices:
                return self.choices[0 if up else -1]
            return self.choices[(self.choices.index(value) + by) % len(self.choices)]
        low, high = self.knob.low or 0, self.knob.high or 0
        if self.knob.words:  # they close the numbers to a ring
            ring = [*range(int(low), int(high) + 1), *self.knob.words]
            return ring[(ring.index(value) + by) % len(ring)]
        if self.knob.kind == "float":
            return min(max(round(value + (TENTH if up else -TENTH), 3), low), high)
        if value is None:
            return None
        if self.geometric:
            wanted = 1 << (value.bit_length() if up else max((value - 1).bit_length() - 1, 0))
        else:
            wanted = value + by
        return int(min(max(wanted, low), high))


def tui_knobs(gamma: str = "γ", offers: Offers = OFFERS) -> tuple[TuiKnob, ...]:
    """`gamma`: how the terminal writes it."""
    table = {knob.name: _worded(knob) for knob in KNOBS if knob.label}
    names = dict.fromkeys((*(name for name in ORDER if name in table), *table))
    return tuple(
        TuiKnob(table[name], gamma if table[name].label == "γ" else table[name].label,
                offers.get(name))
        for name in names
    )  # fmt: skip


def _worded(knob: Knob) -> Knob:
    """With those of its words that the app takes, which are no files."""
    return dataclasses.replace(knob, words=tuple(w for w in POLICIES if w in knob.words))


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
