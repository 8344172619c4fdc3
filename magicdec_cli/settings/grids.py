"""Settings of which a command tries several values: `--budget 128,256 --gamma 1-8`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicdec.cli.settings.knob import Knob
from magicdec.cli.settings.knobs import DECODE, KNOBS, Settings
from magicdec.cli.settings.resolve import resolve
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import FULL, LOOKUP, MEASURED_BY, NO_TREE, SELF, DraftSpec, who_is
from magicdec.engine.errors import ConfigError, PluginError, require
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.untrusted import brief, shown
from magicdec.profiles.files.gamma_names import most_of, policy_of
from magicdec.profiles.files.sweep import sweep
from magicdec.profiles.files.toml import read_toml

if TYPE_CHECKING:
    from magicdec.engine.selectors.base import KVSelector


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


def drafters(
    selectors: Sequence[str], budgets: Sequence[int], options: Mapping[str, object],
    drafts: Sequence[str] = (SELF,), kept: Sequence[str] = ("selected",),
    trees: Sequence[tuple[str, int | None]] = ((NO_TREE, None),), left_out: list[str] | None = None,
) -> list[DraftSpec]:  # fmt: skip
    """Every draft with every selector and budget, as far as it has use for them: lookup has for
    neither, and what sees the whole cache has no budget.

    kept: values of `draft_kv`; trees: kinds with their most nodes, which only the model itself and
    its first layers draft. left_out: gets a line for each combination that cannot be. An option is
    for those selectors that have it. Raises ConfigError for one that none has, for a bad value, for
    a budget that a selector cannot work with, and where no combination can be. A selector that
    fails in other ways is listed: whoever runs it says so.
    """
    from magicdec.engine.selection import chosen_once

    found: dict[tuple[object, ...], DraftSpec] = {}
    impossible: dict[str, None] = {}

    def add(drafter: DraftSpec) -> None:
        once = drafter.selector is None or chosen_once(drafter.selector)
        if drafter.who.cascades and not once:
            impossible[f"cascade {drafter.draft} over {drafter.selector}"] = None
            return
        for tree, nodes in trees if drafter.kind in ("self", "layers") else [(NO_TREE, None)]:
            if tree != NO_TREE and not once:
                impossible[f"tree {tree} over {drafter.selector}"] = None
                continue
            grown = replace(drafter, tree=tree, tree_nodes=nodes, draft_weights="auto")
            found.setdefault(grown.order, grown)

    of_selectors = _selectors(selectors, options)
    for draft in drafts:
        who_is(draft).check()
        if draft == LOOKUP:
            add(DraftSpec(None, draft=draft))
            continue
        for kind in kept:
            if kind == FULL:
                add(DraftSpec(FULL, draft=draft))
                continue
            for name, (selector, own) in of_selectors.items():
                if selector is not None and selector.whole:
                    add(DraftSpec(FULL, draft=draft))
                    continue
                for budget in budgets:
                    with suppress(PluginError):
                        _ = None if selector is None else selector.ring(budget)
                    add(DraftSpec(name, tuple(own.items()), budget, draft=draft))
    lines = [f"{what}, which chooses entries again and again" for what in impossible]
    if not found:
        raise ConfigError(f"nothing to draft with: {lines[0]}; give snapkv or another selector")
    if left_out is not None:
        left_out += lines
    return list(found.values())


def _selectors(
    names: Sequence[str], options: Mapping[str, object]
) -> dict[str, tuple[KVSelector | None, dict[str, object]]]:
    """Each made with those of the options that it has; None for one that fails in that."""
    from magicdec.engine.plugins.registry import option_fields
    from magicdec.engine.selection import SELECTORS

    known = {name: {field.name for field in option_fields(SELECTORS.load(name))} for name in names}
    for option in options:
        if not any(option in own for own in known.values()):
            raise ConfigError(f"no option {option!r} in {', '.join(names)}")
    found: dict[str, tuple[KVSelector | None, dict[str, object]]] = {}
    for name in names:
        own = {key: value for key, value in options.items() if key in known[name]}
        found[name] = None, own
        with suppress(PluginError):
            found[name] = SELECTORS.create(name, own), own
    return found


@dataclass(frozen=True, slots=True)
class Ahead:
    """A γ; or a policy, by the name that --gamma gives it, with the most that it drafts."""

    gamma: int
    policy: str = FIXED.name

    def config(self, drafter: DraftSpec, base: DecodeConfig) -> DecodeConfig:
        """`base`, drafted by that drafter so far ahead."""
        return base.drafted_by(drafter, self.gamma, policy_of(self.policy))

    def misfit(self, drafter: DraftSpec) -> str:
        """Why the drafter cannot draft so far ahead; empty where it can."""
        if self.policy == FIXED.name:
            return ""
        if drafter.tree != NO_TREE:
            return f"γ {self.policy} with tree {drafter.tree}, which is as deep in every step"
        if drafter.draft == LOOKUP and policy_of(self.policy).stop is not None:
            return f"γ {self.policy} with lookup, which has no probabilities"
        return ""


def gammas(grids: Grids) -> tuple[Ahead, ...]:
    """Those of --gamma, or of the setting. Raises ConfigError for one that drafts nothing, and for
    a file that is no schedule."""
    own = Ahead(grids.settings.gamma, grids.settings.gamma_policy)
    given = grids.given.get("gamma")
    found = (own,) if given is None else tuple(map(_ahead, given))
    for ahead in found:
        require(
            ahead.gamma > 0,
            "gamma 0 is plain decoding, which every cell is compared with; leave it out"
            if ahead.policy == FIXED.name
            else f"--gamma {ahead.policy} never drafts, and every cell is compared with plain "
            "decoding; leave it out",
        )
    return found


def _ahead(value: int | str) -> Ahead:
    return Ahead(value) if isinstance(value, int) else Ahead(most_of(value), value)


def ways(
    drafters: Sequence[DraftSpec], aheads: Sequence[Ahead], left_out: list[str]
) -> list[tuple[DraftSpec, Ahead]]:
    """Every drafter with every γ. left_out: gets a line for each combination that cannot be. Raises
    ConfigError where none can."""
    found, impossible = [], dict[str, None]()
    for drafter in drafters:
        for ahead in aheads:
            if why := ahead.misfit(drafter):
                impossible[why] = None
            else:
                found.append((drafter, ahead))
    if not found:
        raise ConfigError(f"no cells of {next(iter(impossible))}; give --gamma a number, too")
    left_out += impossible
    return found


@dataclass(frozen=True, slots=True)
class SweepFile:
    """flags: settings as the command line would give them."""

    documents: tuple[str, ...] = ()
    output: str | None = None
    repeat: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)


def read_sweep_file(path: Path, grids: Sequence[str], worded: Sequence[str] = ()) -> SweepFile:
    """worded: grids that also take the words of their settings.

    Raises ConfigError that names the file and the key.
    """
    data = read_toml(path, pipe=True)
    documents = data.pop("documents", [])
    output, repeat = data.pop("output", None), data.pop("repeat", None)
    if not (isinstance(documents, list) and all(isinstance(d, str) for d in documents)):
        raise ConfigError(f"{path}: documents must be a list of texts, got {brief(documents)}")
    if output is not None and not isinstance(output, str):
        raise ConfigError(f"{path}: output must be a file name, got {brief(output)}")
    if repeat is not None and not (type(repeat) is int and repeat >= 1):
        raise ConfigError(f"{path}: repeat must be a number from 1, got {brief(repeat)}")
    knobs = {knob.key: knob for knob in KNOBS}
    flags: dict[str, Any] = {}
    for key, value in data.items():
        if key not in knobs:
            raise ConfigError(
                f"{path}: unknown key {shown(key)}; it takes documents, output, repeat and the "
                "settings of `magicdec config show`"
            )
        knob, where = knobs[key], f"{path}: {key}"
        if knob.name in grids:
            flags[knob.name] = _grid(knob.name, value, where, knob.name in worded)
        else:
            flags[knob.name] = _as_flag(knob.check(value, where))
    return SweepFile(tuple(documents), output, repeat, flags)


def _grid(name: str, value: object, where: str, words: bool) -> str:
    """A grid as text, a number, or a list of either."""
    items = value if isinstance(value, list) else [value]
    if not items or not all(type(item) in (str, int, float) for item in items):
        raise ConfigError(f"{where} must be a value, a list or a grid as text, got {brief(value)}")
    text = ",".join(item if isinstance(item, str) else brief(item) for item in items)
    grid_values(name, text, where, words=words)
    return text


def _as_flag(value: object) -> object:
    match value:
        case bool():
            return value
        case tuple():
            return list(value)
        case dict():
            return [f"{key}={item}" for key, item in value.items()]
    return str(value)
