"""The drafter under a self-draft, kept in step with what the two above it make of its drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from magicdec.engine.acceptance import Proposal, Rule
from magicdec.engine.drafter import Drafter, SelfDrafter
from magicdec.engine.row import Text


class Inner:
    """Rolls `drafter` back in every round of a draft, and once more after the target's verdict.

    Only what the target accepts ever becomes part of a drafter's cache. During a draft it writes
    beyond that, where each round goes on after the tokens that the self-draft accepted: there is
    nothing to undo. What it was never fed, such as the self-draft's own token at the end of a
    draft that is accepted as a whole, it catches up on before the next draft.

    drafter: proposes after `Text.unverified` tokens; one with a cache begins by feeding it two, as
    `ModelDrafter` does. Those without a cache have no use for what is counted here.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        # By slot: tokens beyond its valid ones that the draft still has; accepted ones it lacks.
        self._held: Counter[int] = Counter()
        self._missed: Counter[int] = Counter()

    def admit(self, slot: int) -> None:
        self.drafter.admit(slot)
        self._held[slot] = self._missed[slot] = 0

    def catch_up(self, rows: Sequence[Text]) -> None:
        """Before a draft that it takes part in."""
        behind = [row for row in rows if self._missed[row.slot]]
        if behind:
            self.drafter.catch_up(behind, [self._missed[row.slot] for row in behind])
            for row in behind:
                self._missed[row.slot] = 0

    def propose(
        self, drafts: Sequence[Text], last: Tensor, most: Sequence[int], rule: Rule
    ) -> Proposal:
        return self.drafter.propose(drafts, last, most, rule)

    def judged(self, drafts: Sequence[Text], accepted: Sequence[int], width: int) -> None:
        """The self-draft accepted so many of `width` tokens, the last of which was not fed."""
        for draft, count in zip(drafts, accepted, strict=True):
            self._held[draft.slot] = draft.unverified + 2 + min(count, width - 1)

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The target's cache has so many more tokens, drafted or not."""
        moved = []
        for slot, count in zip(slots, counts, strict=True):
            moved.append(min(self._held[slot], count))
            self._missed[slot] += count - moved[-1]
            self._held[slot] = 0
        some = [slot for slot, count in zip(slots, moved, strict=True) if count]
        if some:
            self.drafter.commit(some, [count for count in moved if count])


class EarlyExit(SelfDrafter):
    """The self-draft's first layers: they draft into its view, where its pass then overwrites what
    they wrote."""

    def admit(self, slot: int) -> None:
        """The self-draft does that."""

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The self-draft does that."""
