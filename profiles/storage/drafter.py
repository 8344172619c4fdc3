"""How drafts are made, as profiles name it: what acceptance depends on besides the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from magicdec.engine.config import (
    LAYERS,
    LOOKUP,
    SELF,
    UNDER_SELF,
    DecodeConfig,
    DraftKV,
    DraftWeights,
    TreeKind,
)
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.harmless import clean
from magicdec.profiles.gamma_names import policy_of
from magicdec.profiles.storage.fields import last_part, model_name
from magicdec.profiles.storage.header import Scalar

#: What neither a survey nor the cost model knows is measured with one of these.
MEASURED_BY = "`magicdec run --compare`, `magicdec tune` or `magicdec profile record`"

Kind = Literal["self", "lookup", "layers", "model", "cascade"]
NO_TREE: Final = "none"
FULL = "full"  # the selector, and the `draft_kv`, that leave nothing out


@dataclass(frozen=True, slots=True)
class Drafter:
    """A way to draft. Members that a way has no use for are None: lookup reads no KV entries, and
    what attends to all of them has no budget. So equal ways are equal, whatever was asked for.

    A new kind of drafting is one more field, whose default is what files without it mean.
    `selector_options` are sorted pairs.
    """

    selector: str | None
    selector_options: tuple[tuple[str, Scalar], ...] = ()
    budget: int | None = None
    temperature: float = 0.0
    draft_weights: str = "same"
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

    def __lt__(self, other: Drafter) -> bool:
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
    def kind(self) -> Kind:
        return kind_of(self.draft)

    @property
    def fixed(self) -> bool:
        """Whether it drafts as many tokens in every step."""
        return self.gamma_policy == FIXED.name

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
        grown = "" if self.tree == NO_TREE else f" {self.tree} {self.tree_nodes}"
        return way(self.draft, self.draft_kv, selector, self.budget) + grown

    def config(self, base: DecodeConfig, gamma: int) -> DecodeConfig:
        """A run that drafts like this; all else as in `base`, the temperature too."""
        return replace(
            drafting(
                base, gamma, draft=self.draft, draft_kv=self.draft_kv, selector=self.selector,
                options=dict(self.selector_options), budget=self.budget, tree=self.tree,
                tree_nodes=self.tree_nodes,
            ),
            draft_weights=cast(DraftWeights, self.draft_weights),  # DecodeConfig checks it
            gamma_policy=policy_of(self.gamma_policy),
        )  # fmt: skip


def kind_of(draft: str) -> Kind:
    if draft == SELF:
        return "self"
    if draft == LOOKUP:
        return "lookup"
    if draft.endswith(UNDER_SELF):
        return "cascade"
    return "layers" if draft.startswith(LAYERS) else "model"


def split_cascade(draft: str) -> tuple[str, str]:
    """A draft and what makes it a cascade, or nothing: layers:6 and +self."""
    first = draft.removesuffix(UNDER_SELF)
    return first, draft[len(first) :]


def draft_name(draft: str) -> str:
    """A draft as profiles name it: of a local model without its folders."""
    first, under = split_cascade(draft)
    return model_name(first) + under


def policy_name(policy: str) -> str:
    """How γ is chosen, as profiles name it: of a schedule's file without its folders."""
    return clean(last_part(policy))


def way(draft: str, draft_kv: str | None, selector: str | None, budget: int | None) -> str:
    """In words: `snapkv 256`, `full`, `lookup`, `layers:10 snapkv 256`, `smollm2-135m full KV`."""
    if draft == LOOKUP:
        return draft
    model, under = split_cascade(draft)
    who = "" if draft == SELF else f"{last_part(model)}{under} "
    if draft_kv == FULL:
        return f"{who}full KV" if who else FULL
    return f"{who}{selector}" + ("" if budget is None else f" {budget}")


def drafting(
    base: DecodeConfig, gamma: int, *, draft: str, draft_kv: str | None, selector: str | None,
    options: Mapping[str, object], budget: int | None, tree: str, tree_nodes: int | None,
) -> DecodeConfig:  # fmt: skip
    """`base` with another way to draft; None leaves what then does not matter as it is."""
    return replace(
        base, draft=draft, draft_kv=cast(DraftKV, draft_kv or "selected"),
        selector=selector or base.selector, selector_options=dict(options),
        budget=budget or base.budget, gamma=gamma, tree=cast(TreeKind, tree),
        tree_nodes=tree_nodes or base.tree_nodes,
    )  # fmt: skip
