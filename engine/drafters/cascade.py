"""A cascade: a cheap drafter under the sparse self-draft (TriForce, arXiv 2404.11912)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from magicdec.engine.accept.chain import Proposal, Rule
from magicdec.engine.config import INNER_GAMMA, DraftWeights
from magicdec.engine.drafters.base import Drafter, SelfDrafter, chance
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.finiteness import Watched
from magicdec.engine.request import Request
from magicdec.engine.rows import Text
from magicdec.engine.views.base import DraftView
from magicdec.kernels.transfer import to_device


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


#: Ends the name of a stream of random numbers: those that decide inside a draft.
INNER_STREAM = 1


@dataclass(frozen=True, slots=True)
class Drafted:
    """A row and what was drafted for it so far: `tokens` go on where the row's own end."""

    request: Request
    slot: int
    tokens: list[int]
    known: int  # of the tokens, the row's own

    @property
    def unverified(self) -> int:
        return len(self.tokens) - self.known


class CascadeDrafter(SelfDrafter):
    """The inner drafter proposes, the self-draft (the middle) verifies over its sparse view.

    A pass of the middle so gives several tokens instead of one. They come out of speculative
    sampling with the middle as target: accepted, recovered from the residual, or the bonus. Each is
    therefore distributed exactly as the middle's q given the text before it, and with that q the
    target's verification is exact, too. Greedy: the tokens are those the middle drafts alone.

    The inner drafter reads the text (lookup), writes into the middle's view what the middle then
    overwrites (its first layers), or has a cache of its own (another model; see `Inner`). Rejected
    tokens stay beyond the accepted ones in the view, until the next pass writes there; so does what
    the target rejects.

    rule: accepts inside the draft. Its random numbers are a stream of their own, made anew for
    every draft from the row's seed and the text's length: they must not decide twice.
    make_inner: from the middle, which is another one once it is quantised.
    """

    def __init__(
        self, model: Decoder, view: DraftView, weights: DraftWeights, rule: Rule,
        make_inner: Callable[[Decoder], Drafter], stop: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model, view, weights, stop)
        self._rule, self._make_inner = rule, make_inner
        self._inner = Inner(make_inner(model))

    def prepare(self) -> None:
        super().prepare()
        self._inner.drafter = self._make_inner(self._model)
        self._inner.drafter.prepare()

    def admit(self, slot: int) -> None:
        super().admit(slot)
        self._inner.admit(slot)

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        super().commit(slots, counts)
        self._inner.commit(slots, counts)

    def watching(self) -> list[Watched]:
        return [self.watched, *self._inner.drafter.watching()]

    def propose(
        self, rows: Sequence[Text], pending: Tensor, most: Sequence[int], rule: Rule
    ) -> Proposal:
        for row in rows:
            self._rule.admit(row.slot, row.request.row, len(row.tokens), INNER_STREAM)
        if max(most) > 1:  # the last token of a draft is the middle's own
            self._inner.catch_up(rows)
        drafts = [Drafted(row.request, row.slot, list(row.tokens), len(row.tokens)) for row in rows]
        probs: list[list[Tensor]] = [[] for _ in rows]  # of each row, q of its drafted tokens [V]
        sure = [1.0] * len(rows)
        going = [i for i, gamma in enumerate(most) if gamma]
        while going:
            room = [min(INNER_GAMMA, most[i] - drafts[i].unverified - 1) for i in going]
            found = self._round([drafts[i] for i in going], room, pending.device)
            for i, (tokens, q, chances) in zip(going, found, strict=True):
                drafts[i].tokens.extend(tokens)
                probs[i] += q
                for value in chances:
                    sure[i] *= value
            going = [
                i for i in going
                if drafts[i].unverified < most[i] and sure[i] >= (self._stop or 0.0)
            ]  # fmt: skip
        return _padded([draft.tokens[draft.known :] for draft in drafts], probs, pending)

    def _round(
        self, drafts: Sequence[Drafted], room: Sequence[int], device: torch.device
    ) -> list[tuple[list[int], list[Tensor], list[float]]]:
        """One pass of the middle: of each row its new tokens, q of each, and q of the token alone.

        room: the most that the inner drafter may propose, so that these and the middle's own token
        fit.
        """
        slots, done = [draft.slot for draft in drafts], [draft.unverified for draft in drafts]
        last = to_device([draft.tokens[-1:] for draft in drafts], device)  # [n, 1]
        self._rule.begin(slots, done, room)
        proposal = Proposal(last[:, :0])
        if max(room):
            proposal = self._inner.propose(drafts, last, room, self._rule)
        fed = torch.cat((last, proposal.tokens), dim=1)  # [n, g + 1]
        logits = self._pass(slots, done, fed)  # [n, g + 1, V]
        logits = self._rule.penalised(drafts, logits, [proposal.tokens])
        verdict = self._rule.accept(proposal, logits)
        q = self._rule.probabilities(logits)
        results = torch.cat(
            (verdict.accepted[:, None], verdict.next[:, None], proposal.tokens), dim=1
        ).tolist()
        said = [[*inner[:n], following] for n, following, *inner in results]
        if max(room):
            self._inner.judged(drafts, [len(tokens) - 1 for tokens in said], fed.shape[1] - 1)
        self.counts.inner_drafted += sum(proposal.drafted(room))
        self.counts.inner_accepted += sum(len(tokens) - 1 for tokens in said)
        chances = self._chances(logits, said, q)
        return [
            (tokens, [] if q is None else list(q[i, : len(tokens)]), chances[i])
            for i, tokens in enumerate(said)
        ]

    def _chances(
        self, logits: Tensor, said: Sequence[list[int]], q: Tensor | None
    ) -> list[list[float]]:
        """The middle's probability of each token; none where nobody asks."""
        if self._stop is None:
            return [[] for _ in said]
        width = logits.shape[1]
        tokens = to_device([[*row, *[0] * (width - len(row))] for row in said], logits.device)
        values = chance(logits, tokens, q).tolist()
        return [list(row[: len(own)]) for row, own in zip(values, said, strict=True)]


def _padded(
    drafted: Sequence[list[int]], probs: Sequence[list[Tensor]], pending: Tensor
) -> Proposal:
    """Ragged drafts as one proposal."""
    lengths = [len(tokens) for tokens in drafted]
    width = max(lengths)
    if not width:
        return Proposal(pending[:, :0], None, lengths)
    tokens = to_device([[*row, *[0] * (width - len(row))] for row in drafted], pending.device)
    first = next((q[0] for q in probs if q), None)
    if first is None:
        return Proposal(tokens, None, lengths)
    none = torch.zeros_like(first)
    q = torch.stack([torch.stack([*row, *[none] * (width - len(row))]) for row in probs])
    return Proposal(tokens, q, lengths)  # q [n, G, V]
