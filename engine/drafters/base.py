"""The drafter contract, state in and γ proposals per row out; the model drafting for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from magicdec.engine.accept.chain import Proposal, Rule
from magicdec.engine.cache.kv import Observer
from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.errors import ConfigError
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.finiteness import Watched, rounding
from magicdec.engine.rows import Text
from magicdec.engine.selection import draft_selector
from magicdec.engine.trees.tree import Nodes
from magicdec.engine.views.base import DraftView
from magicdec.kernels.linear import int8_unsupported


class Confidence:
    """Follows one draft of n rows. `lengths` [n]: how much of it counts, by row."""

    def __init__(self, stop: float | None, most: Sequence[int]) -> None:
        self._stop, self._most = stop, most
        self._chance: Tensor | None = None  # [n]: that all tokens so far are accepted
        self._drafted = 0
        self._ended: dict[int, int] = {}  # row -> its length

    @property
    def lengths(self) -> list[int]:
        return [self._ended.get(row, most) for row, most in enumerate(self._most)]

    def ends(self, logits: Tensor, token: Tensor, q: Tensor | None) -> bool:
        """Whether no row wants another token after this one, token [n], drawn from q [n, V].

        Waits for the device, once for each draft step, when there is anything to decide.
        """
        self._drafted += 1
        if self._stop is None:
            return False
        sure = chance(logits, token, q)
        self._chance = sure if self._chance is None else self._chance * sure
        for row, unlikely in enumerate((self._chance < self._stop).tolist()):
            if unlikely or self._drafted >= self._most[row]:
                self._ended.setdefault(row, min(self._drafted, self._most[row]))
        return len(self._ended) == len(self._most)


def chance(logits: Tensor, tokens: Tensor, q: Tensor | None) -> Tensor:
    """The draft's probability of its tokens [...]: of logits [..., V] when greedy, q is None."""
    probs = logits.float().softmax(dim=-1) if q is None else q
    return probs.gather(-1, tokens[..., None])[..., 0]


@dataclass(slots=True)
class DraftCounts:
    """Sums over a run. A pass of n rows counts n times."""

    passes: int = 0
    entries_read: int = 0  # KV entries, those that the pass writes included
    inner_drafted: int = 0  # of a cascade: tokens that its inner drafter proposed
    inner_accepted: int = 0


class Drafter(ABC):
    #: Wants to see the queries of the verify pass, layer by layer.
    observer: Observer | None = None
    #: How many of a prompt's last queries it wants to see.
    observed: int = 0

    def __init__(self) -> None:
        self.counts = DraftCounts()
        self.watched = Watched("the model, drafting for itself,")

    def watching(self) -> list[Watched]:
        """Of every model that drafts here."""
        return [self.watched]

    def prepare(self) -> None:  # noqa: B027 (most have nothing to do)
        """Makes what drafting needs and no row does; before the first prompt, as phase `load`."""

    @abstractmethod
    def admit(self, slot: int) -> None:
        """A row was prefilled into `slot`."""

    @abstractmethod
    def propose(
        self, rows: Sequence[Text], pending: Tensor, most: Sequence[int], rule: Rule
    ) -> Proposal:
        """Up to `most` tokens after pending [n, 1], each row's last token, that no cache holds."""

    @abstractmethod
    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The last `counts` tokens of each row's full cache were accepted."""

    def catch_up(self, rows: Sequence[Text], counts: Sequence[int]) -> None:
        """The same for tokens that came without drafts: plain steps leave the drafter alone."""
        self.commit([row.slot for row in rows], counts)

    @abstractmethod
    def entries(self, slot: int) -> int:
        """KV entries that the row's next draft step reads."""


class StepwiseDrafter(Drafter):
    """A model that drafts token by token over a view of a cache.

    stop: see `gamma.policy.Adaptive`; None drafts as much as it may.
    """

    def __init__(
        self, model: Decoder, view: DraftView, weights: DraftWeights, stop: float | None = None
    ) -> None:
        super().__init__()
        self._model, self._view, self._weights, self._stop = model, view, weights, stop

    def prepare(self) -> None:
        if self._weights == "int8":
            self._model = self._model.quantized

    def entries(self, slot: int) -> int:
        return self._view.entries(slot)

    def propose(
        self, rows: Sequence[Text], pending: Tensor, most: Sequence[int], rule: Rule
    ) -> Proposal:
        slots = [row.slot for row in rows]
        tokens: list[Tensor] = []  # [n, 1] each
        probs: list[Tensor] = []
        confidence = Confidence(self._stop, most)
        fed, ahead = self._first(rows, pending), [row.unverified for row in rows]
        for position in range(max(most)):
            logits = self._logits(self._pass(slots, ahead, fed, last_only=True))  # [n, 1, V]
            logits = rule.penalised(rows, logits, tokens)[:, 0]
            token, q = rule.draft(logits, position)
            tokens.append(token[:, None])
            if q is not None:
                probs.append(q)
            if confidence.ends(logits, token, q):
                break
            ahead = [a + fed.shape[1] for a in ahead]
            fed = tokens[-1]
        return Proposal(
            torch.cat(tokens, dim=1),
            torch.stack(probs, dim=1) if probs else None,
            confidence.lengths,
        )

    def read(self, slots: Sequence[int], fed: Tensor) -> Tensor:
        """The logits [n, T, V] after each of the given tokens [n, T], which come after what the
        view holds: for a text that is known. `commit` then says how many of them count."""
        return self._logits(self._pass(slots, [0] * len(slots), fed))

    def _pass(
        self, slots: Sequence[int], ahead: Sequence[int], fed: Tensor, *, last_only: bool = False,
        nodes: Nodes | None = None,
    ) -> Tensor:  # fmt: skip
        """One forward of fed [n, T], `ahead` tokens after each row's valid ones: [n, T or 1, V].

        nodes: see `DraftView.access`.
        """
        width = fed.shape[1]
        self.counts.passes += len(slots)
        self.counts.entries_read += sum(
            self._view.entries(slot) + a + width for slot, a in zip(slots, ahead, strict=True)
        )
        access = self._view.access(slots, ahead, width, nodes)
        with rounding(self.watched.who, self._model.dtype):
            logits = self._model.forward(fed, access, last_only=last_only)
        self.watched.saw(logits)
        return logits

    def _first(self, rows: Sequence[Text], pending: Tensor) -> Tensor:
        """What the first pass is fed: the tokens that the view lacks, [n, T]."""
        return pending

    def _logits(self, logits: Tensor) -> Tensor:
        """The model's logits [..., V'] over the target's vocabulary [..., V]."""
        return logits


class SelfDrafter(StepwiseDrafter):
    """The target model itself, over a sparse view of its own cache (MagicDec, section 4).

    `model` may also be the target's first layers with its head, an early exit: K and V of those
    layers are in the target's cache already.
    """

    def __init__(
        self, model: Decoder, view: DraftView, weights: DraftWeights, stop: float | None = None
    ) -> None:
        super().__init__(model, view, weights, stop)
        self.observer, self.observed = view.observer, view.observed

    def admit(self, slot: int) -> None:
        self._view.admit(slot)

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        self._view.commit(slots, counts)


def draft_weights(config: DecodeConfig, device: torch.device, dtype: torch.dtype) -> DraftWeights:
    """Which weights will draft: "same" or "int8"; "same" for plain decoding.

    auto takes int8 wherever it works: a draft step then reads a quarter of the bytes and almost
    as many of its tokens are accepted. It leaves the model alone where that drafts for itself over
    the whole cache: that is the control, which must accept everything. Nor does it touch sampling:
    the int8 kernels round the activations of all rows on one scale, so that what a row drafts
    depends on its batch mates; the distribution stays exact, but a seed would no longer fix the
    row's text. Raises ConfigError when int8 is asked for and cannot be had.
    """
    if not config.reads_cache or config.draft_weights == "same":
        return "same"
    control = config.who.kind in ("self", "cascade") and draft_selector(config).whole
    if config.draft_weights == "auto" and (control or not config.sampling.greedy):
        return "same"
    reason = int8_unsupported(device, dtype)
    if reason and config.draft_weights == "int8":
        raise ConfigError(f"{reason}; use --draft-weights same")
    return "same" if reason else "int8"
