"""Who drafts, over what, and how far: the one record of it, and `layers:6+self` taken apart.

Plain data: no torch. `selection` makes the selector, `drafters.make` the drafter.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Final, Literal, Self

from magicdec.engine.errors import require
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.untrusted import clean, last_part, model_name

SELF, LOOKUP, LAYERS = "self", "lookup", "layers:"
DIGITS = 9  # of a number of layers: more than any model has, and Python reads no thousands of them
UNDER_SELF = "+self"  # ends the name of a cascade: lookup+self, layers:6+self, a model's + "+self"
WAYS = "self, lookup, layers:N, a model, or a cascade: lookup+self, layers:N+self or MODEL+self"
NO_TREE: Final = "none"
FULL = "full"  # the selector, and the `draft_kv`, that leave nothing out
#: What neither a survey nor the cost model knows is measured with one of these.
MEASURED_BY = "`magicdec run --compare`, `magicdec tune` or `magicdec profile record`"

Kind = Literal["self", "lookup", "layers", "model", "cascade"]


@dataclass(frozen=True, slots=True)
class Who:
    """Who drafts, as `--draft` names it; `first` of a cascade drafts for the self-draft."""

    name: str
    kind: Kind
    first: str  # the name without what makes it a cascade's
    layers: int | None = None  # how many of the model's draft first; 0 for what is no number
    model: str | None = None  # the other model that drafts first, as `--model` names one

    @property
    def cascades(self) -> bool:
        return self.kind == "cascade"

    @property
    def short(self) -> str:
        """Of a model without its folders, for tables."""
        return last_part(self.first.removesuffix("/.")) + self._under

    @property
    def stored(self) -> str:
        """As profiles name it: of a local model without its folders, of a hub's the whole id."""
        return model_name(self.first) + self._under

    @property
    def _under(self) -> str:
        return self.name[len(self.first) :]

    def check(self) -> None:
        """Raises ConfigError for what is no way to draft."""
        require(bool(self.name), f"draft is empty; give {WAYS}")
        require(
            not self._misspelt,
            f"draft {self.name!r} is no way to draft; give {WAYS}; a folder of that name is "
            f"./{self.name}",
        )
        require(
            self.layers is None or self.layers >= 1,
            f"draft {self.name!r} runs no layer; give a number of layers, such as layers:6, or "
            "layers:6+self for a cascade",
        )
        require(
            not self.cascades or self.first not in ("", SELF),
            f"draft {self.name!r} names nobody who drafts for the self-draft; "
            "give lookup+self, layers:6+self or MODEL+self",
        )
        require(
            self.model is None or not self.model.rstrip("/\\").endswith(UNDER_SELF),
            f"draft {self.name!r}: {self.model!r} ends in +self, which makes a name a "
            "cascade's; a cascade has one drafter under self, and a folder that is called so needs "
            "another name or a link to it",
        )

    @property
    def _misspelt(self) -> bool:
        """Whether it begins like a name with a meaning, and goes on as none of them does."""
        begin, plus, _ = self.first.partition("+")
        words = begin in ("", SELF, LOOKUP) or begin.startswith(LAYERS)
        return self.first == LAYERS.rstrip(":") or (bool(plus) and words)


@cache
def who_is(draft: str) -> Who:
    """What `--draft` says, taken apart; whatever it is, see `Who.check`."""
    first = draft.removesuffix(UNDER_SELF)
    layers = model = None
    kind: Kind = "model"
    if first in (SELF, LOOKUP):
        kind = "self" if first == SELF else "lookup"
    elif first.startswith(LAYERS):
        count, kind = first.removeprefix(LAYERS), "layers"
        layers = int(count.lstrip("0")[:DIGITS] or 0) if count.isascii() and count.isdigit() else 0
    else:
        model = first
    return Who(draft, "cascade" if first != draft else kind, first, layers, model)


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """A way to draft: what acceptance depends on besides the text. Members that a way has no use
    for are None: lookup reads no KV entries, and what attends to all of them has no budget. So
    equal ways are equal, whatever was asked for.

    A new kind of drafting is one more field, whose default is what files without it mean.
    `selector_options` are pairs, sorted where a profile has them.
    """

    selector: str | None
    selector_options: tuple[tuple[str, Any], ...] = ()
    budget: int | None = None
    temperature: float = 0.0
    draft_weights: str = "same"  # auto: as the run's settings say
    draft: str = SELF
    draft_kv: str | None = "selected"
    tree: str = NO_TREE
    tree_nodes: int | None = None  # of a tree, at most
    gamma_policy: str = FIXED.name  # else a γ is the most that it drafts: auto, adaptive, a file

    def __post_init__(self) -> None:
        unused: dict[str, object] = {}
        if self.draft == LOOKUP:
            unused = dict.fromkeys(("selector", "budget", "draft_kv")) | {"draft_weights": "same"}
        elif FULL in (self.draft_kv, self.selector):
            unused = {"selector": FULL, "budget": None, "draft_kv": FULL}
        for name, value in unused.items():
            object.__setattr__(self, name, value)
        if unused:
            object.__setattr__(self, "selector_options", ())
        if self.tree == NO_TREE:
            object.__setattr__(self, "tree_nodes", None)

    def __lt__(self, other: DraftSpec) -> bool:
        return self.order < other.order

    @property
    def order(self) -> tuple[str, bool, str, str, str, int, int, float, str, str]:
        """Options come last and as text: two values of one option may be of different types."""
        return (
            "" if self.draft == SELF else self.draft, self.draft_kv == FULL,
            "" if self.tree == NO_TREE else self.tree,
            "" if self.fixed else self.gamma_policy, self.selector or "", self.budget or 0,
            self.tree_nodes or 0, self.temperature, self.draft_weights, repr(self.selector_options),
        )  # fmt: skip

    @property
    def who(self) -> Who:
        return who_is(self.draft)

    @property
    def kind(self) -> Kind:
        return self.who.kind

    @property
    def chooser(self) -> str | None:
        """The selector that chooses what drafts read; None where nothing is read or left out."""
        return None if self.budget is None else self.selector

    @property
    def fixed(self) -> bool:
        """Whether it drafts as many tokens in every step."""
        return self.gamma_policy == FIXED.name

    @property
    def stored(self) -> Self:
        """As profiles name it: models and schedules without the user's folders."""
        return replace(self, draft=self.who.stored, gamma_policy=stored_policy(self.gamma_policy))

    @property
    def json(self) -> dict[str, Any]:
        return asdict(self) | {"selector_options": dict(self.selector_options)}

    @property
    def flags(self) -> list[str]:
        """Who drafts, over what, for `magicdec run`; γ, trees, weights and temperature are left to
        the caller."""
        parts = [] if self.draft == SELF else ["--draft", self.draft]
        if self.selector is None:
            return parts
        if self.budget is None:
            return [*parts, "--draft-kv", FULL]
        parts += ["--selector", self.selector]
        for name, value in self.selector_options:
            parts += ["--selector-option", f"{name}={value}"]
        return [*parts, "--budget", str(self.budget)]

    @property
    def way(self) -> str:
        """Who drafts over what, short enough for a table: of a selector its class alone."""
        own = self._way(self.selector and self.selector.rpartition(":")[2])
        return own if self.fixed else f"{own} {last_part(self.gamma_policy)}"

    @property
    def label(self) -> str:
        own = self._label
        return own if self.fixed else f"{own}, {last_part(self.gamma_policy)}"

    def ahead(self, gamma: int) -> str:
        """The label, with how far it drafts."""
        most = f"{gamma}" if self.fixed else f"{last_part(self.gamma_policy)} up to {gamma}"
        return f"{self._label}, γ {most}"

    @property
    def _label(self) -> str:
        options = "".join(f" {name}={value}" for name, value in self.selector_options)
        drawn = f", T {self.temperature:g}" if self.temperature else ""
        weights = "" if self.draft_weights == "same" else f", {self.draft_weights} draft"
        return f"{self._way(f'{self.selector}{options}')}{weights}{drawn}"

    def _way(self, selector: str | None) -> str:
        """`snapkv 256`, `full`, `lookup`, `layers:10 snapkv 256`, `smollm2-135m full KV`."""
        parts = [] if self.draft == SELF else [self.who.short]
        if self.draft_kv == FULL:
            parts.append(f"{FULL} KV" if parts else FULL)
        elif self.draft != LOOKUP:
            parts.append(f"{selector}" + ("" if self.budget is None else f" {self.budget}"))
        if self.tree != NO_TREE:
            parts.append(f"{self.tree} {self.tree_nodes}")
        return " ".join(parts)


def stored_policy(policy: str) -> str:
    """How γ is chosen, as profiles name it: of a schedule's file without its folders."""
    return clean(last_part(policy))
