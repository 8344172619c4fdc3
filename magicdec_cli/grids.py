"""Settings of which a command tries several values: `--budget 128,256 --gamma 1-8`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from magicdec.cli.knob import Knob
from magicdec.cli.knobs import DECODE, KNOBS, Settings
from magicdec.cli.settings import resolve
from magicdec.engine.draft_spec import MEASURED_BY, who_is
from magicdec.engine.errors import ConfigError, require
from magicdec.profiles.sweep import sweep

GRAMMAR = (
    "A GRID is a value, a list 1,4,8, or of whole numbers a range 1-6, 1000-4000+500 (steps of "
    "500), 1024-8192*2 (doubling); 32k is 32,000."
)
_KNOBS = {knob.name: knob for knob in KNOBS}


@dataclass(frozen=True, slots=True)
class Grids:
    """settings: everything else. given: the values of each grid that the command line named."""

    settings: Settings
    given: Mapping[str, tuple[Any, ...]]

    def values(self, name: str) -> tuple[Any, ...]:
        """At least one: without a flag that of environment, file or default."""
        return self.given.get(name) or (getattr(self.settings, name),)


TREES = ("tree", "tree_nodes", "tree_rates")
NO_TREES = "--tree is for `magicdec run`, `tune` and `profile record`; leave it out"


def refuse_cascades(drafts: Sequence[str]) -> None:
    """For what surveys. Raises ConfigError, before anything is loaded or calibrated."""
    for draft in drafts:
        require(
            not who_is(draft).cascades,
            f"--draft {draft}: a cascade drafts what self does, only sooner, so a survey cannot "
            f"tell them apart; give self here, and measure the cascade with {MEASURED_BY}",
        )


def read_grids(flags: Mapping[str, Any], names: Sequence[str], worded: Sequence[str] = ()) -> Grids:
    """worded: those of the names that also take the words of their settings, as texts.

    Raises ConfigError for a value that does not fit its setting.
    """
    given = {
        name: grid_values(name, flags[name], _KNOBS[name].flag, words=name in worded)
        for name in names if flags[name] is not None
    }  # fmt: skip
    settings = resolve({k: v for k, v in flags.items() if k not in names}).settings
    require("tree" in names or settings.tree == "none", NO_TREES)
    takes_numbers = "gamma" in names and "gamma" not in worded
    if takes_numbers and settings.gamma_policy != "fixed":  # a policy in a file is for others
        settings = replace(settings, gamma=DECODE.gamma, gamma_policy="fixed")
    return Grids(settings, given)


def apart(name: str, text: str) -> tuple[str | None, tuple[str, ...]]:
    """A grid without the words that its setting takes besides numbers, None when that leaves
    nothing; and these words, each once: `1-6,auto`."""
    items = [item.strip() for item in text.split(",")]
    words = [item for item in items if _KNOBS[name].is_word(item)]
    rest = [item for item in items if item not in words]
    return ",".join(rest) if rest else None, tuple(dict.fromkeys(words))


def grid_values(name: str, text: str, source: str, *, words: bool = False) -> tuple[Any, ...]:
    """The values that `text` names for a setting, each once, in order; words: those that the
    setting takes besides numbers come last. Raises ConfigError naming `source`."""
    knob = _KNOBS[name]
    if words:
        return _with_words(knob, text, source)
    if knob.kind == "int":
        assert knob.low is not None and knob.high is not None
        return sweep(text, source, low=int(knob.low), high=int(knob.high))
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise ConfigError(f"{source} {text!r} has an empty item; write one, or a list a,b")
    return tuple(dict.fromkeys(knob.parse(item, source) for item in items))


def _with_words(knob: Knob, text: str, source: str) -> tuple[Any, ...]:
    numbers, words = apart(knob.name, text)
    try:
        return (*(() if numbers is None else grid_values(knob.name, numbers, source)), *words)
    except ConfigError as error:
        raise ConfigError(f"{error}; or give {knob.expects}") from None
