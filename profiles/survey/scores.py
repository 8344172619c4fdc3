"""A prompt's scores, computed once for all budgets of a selector."""

from __future__ import annotations

import copy

from torch import Tensor

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.plugins import is_ours
from magicdec.engine.selection import selector_of
from magicdec.engine.selectors.base import KVSelector, ScoredSelector


class Scores:
    """For a cache whose prompts stay as they are: a head of a layer of a row is known by where its
    keys lie."""

    def __init__(self) -> None:
        self._selectors: dict[str, KVSelector] = {}

    def selector(self, drafter: DraftSpec) -> KVSelector:
        """What `selector_of` makes; the same one for the same selector and options."""
        name = repr((drafter.selector, sorted(drafter.selector_options)))
        if name not in self._selectors:
            self._selectors[name] = _remembering(selector_of(drafter))
        return self._selectors[name]


def _remembering(selector: KVSelector) -> KVSelector:
    if not isinstance(selector, ScoredSelector) or not is_ours(type(selector)):
        return selector  # a stranger's gets copies, which say nothing by where they lie
    found: dict[tuple[int, int], Tensor] = {}
    score = selector.score

    def remembered(keys: Tensor, queries: Tensor) -> Tensor:
        place = keys.data_ptr(), keys.shape[1]
        if place not in found:
            found[place] = score(keys, queries)
        return found[place]

    same = copy.copy(selector)
    vars(same)["score"] = remembered  # its dataclass is frozen
    return same
