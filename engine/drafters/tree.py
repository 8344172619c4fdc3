"""The model drafts trees for itself, a generation per pass over its sparse view."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from magicdec.engine.accept.chain import Proposal, Rule
from magicdec.engine.accept.tree import TreeRule
from magicdec.engine.config import DraftWeights
from magicdec.engine.drafters.base import SelfDrafter
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.rows import Text
from magicdec.engine.trees.grow import Grower
from magicdec.engine.views.base import DraftView


class TreeDrafter(SelfDrafter):
    def __init__(
        self, model: Decoder, view: DraftView, weights: DraftWeights, grower: Grower
    ) -> None:
        super().__init__(model, view, weights)
        self._grower = grower

    def propose(
        self, rows: Sequence[Text], pending: Tensor, most: Sequence[int], rule: Rule
    ) -> Proposal:
        """Trees of up to `most` generations."""
        assert isinstance(rule, TreeRule)
        slots, ahead = [row.slot for row in rows], 0
        fed: list[Tensor] = []  # the root first
        growth = self._grower.begin(pending, rule)
        for _ in range(min(max(most), self._grower.height)):
            nodes = growth.nodes()
            fed.append(growth.fed)
            logits = self._pass(slots, [ahead] * len(slots), fed[-1], nodes=nodes)
            growth.expand(rule.penalised(rows, logits, fed[1:], nodes))
            ahead += fed[-1].shape[1]
        return growth.proposal()
