"""A drafter as a survey asks about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magicdec.engine.config import SELF, DecodeConfig
from magicdec.engine.errors import PluginError
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import KVSelector
from magicdec.profiles.storage import drafter as storage
from magicdec.profiles.storage.drafter import FULL, NO_TREE, drafting, way
from magicdec.profiles.storage.header import Scalar


@dataclass(frozen=True, slots=True)
class Drafter:
    """A way to draft; γ is left open. options: those of the selector. None: of no use to it."""

    selector: str | None
    budget: int | None
    options: Mapping[str, object] = field(default_factory=dict)
    draft: str = SELF
    draft_kv: str | None = "selected"
    tree: str = NO_TREE
    tree_nodes: int | None = None

    @property
    def way(self) -> str:
        return way(self.draft, self.draft_kv, self.selector, self.budget)

    def create(self) -> KVSelector:
        """What chooses the KV entries that it reads; lookup reads none."""
        return SELECTORS.create(self.selector or FULL, self.options)

    def config(self, base: DecodeConfig, gamma: int) -> DecodeConfig:
        return drafting(
            base, gamma, draft=self.draft, draft_kv=self.draft_kv, selector=self.selector,
            options=self.options, budget=self.budget, tree=self.tree,
            tree_nodes=self.tree_nodes,
        )  # fmt: skip

    def named(self, temperature: float, weights: str) -> storage.Drafter:
        """As profiles name it; weights: those that did draft."""
        return storage.Drafter(
            self.selector, self._scalars(), self.budget, temperature, weights, self.draft,
            self.draft_kv, self.tree, self.tree_nodes,
        )  # fmt: skip

    def _scalars(self) -> tuple[tuple[str, Scalar], ...]:
        """The options that were given, as the selector understood them, if it can be made."""
        try:
            selector = self.create()
        except PluginError:
            pairs = sorted(self.options.items())
        else:
            pairs = [(name, getattr(selector, name)) for name in sorted(self.options)]
        return tuple((name, v if isinstance(v, Scalar) else str(v)) for name, v in pairs)
