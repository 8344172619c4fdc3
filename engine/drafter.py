"""Who drafts: state in, γ proposals per row out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.acceptance import Proposal, Rule
from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.draft_view import DraftView
from magicdec.engine.errors import ConfigError
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.selectors.base import SELECTORS
from magicdec.kernels.linear import int8_unsupported


class Drafter(ABC):
    def prepare(self) -> None:  # noqa: B027 (most have nothing to do)
        """Called once rows are prefilled and before the first draft; counted as prefill."""

    @abstractmethod
    def admit(self, slot: int) -> None:
        """A row was prefilled into `slot`."""

    @abstractmethod
    def propose(self, slots: Sequence[int], pending: Tensor, gamma: int, rule: Rule) -> Proposal:
        """γ tokens after pending [n, 1], each row's last token, which no cache holds yet."""

    @abstractmethod
    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The last `counts` tokens of each row's full cache were accepted."""

    @abstractmethod
    def entries(self, slot: int) -> int:
        """KV entries that the row's next draft step reads."""


class SelfDrafter(Drafter):
    """The target model itself, over a sparse view of its own cache (MagicDec, section 4)."""

    def __init__(self, model: Decoder, view: DraftView, weights: DraftWeights) -> None:
        self._target = self._model = model
        self._view, self._weights = view, weights

    def prepare(self) -> None:
        if self._weights == "int8":
            self._model = self._model.quantized

    def admit(self, slot: int) -> None:
        self._view.admit(slot)

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        self._view.commit(slots, counts)

    def entries(self, slot: int) -> int:
        return self._view.entries(slot)

    def propose(self, slots: Sequence[int], pending: Tensor, gamma: int, rule: Rule) -> Proposal:
        tokens, probs = [], []
        token = pending[:, 0]
        for ahead in range(gamma):
            logits = self._model.forward(token[:, None], self._view.access(slots, ahead))
            token, q = rule.draft(logits[:, 0], ahead)
            tokens.append(token)
            if q is not None:
                probs.append(q)
        return Proposal(torch.stack(tokens, dim=1), torch.stack(probs, dim=1) if probs else None)


def draft_weights(config: DecodeConfig, device: torch.device, dtype: torch.dtype) -> DraftWeights:
    """Which weights will draft: "same" or "int8"; "same" for plain decoding.

    auto takes int8 wherever it works: a draft step then reads a quarter of the bytes and almost
    as many of its tokens are accepted. It leaves a selector alone that sees the whole cache: that
    one is the control, which must accept everything. Nor does it touch sampling: the int8 kernels
    round the activations of all rows on one scale, so that what a row drafts depends on its batch
    mates; the distribution stays exact, but a seed would no longer fix the row's text. Raises
    ConfigError when int8 is asked for and cannot be had.
    """
    if config.gamma == 0 or config.draft_weights == "same":
        return "same"
    if config.draft_weights == "auto" and (
        SELECTORS.load(config.selector).whole or not config.sampling.greedy
    ):
        return "same"
    reason = int8_unsupported(device, dtype)
    if reason and config.draft_weights == "int8":
        raise ConfigError(f"{reason}; use --draft-weights same")
    return "same" if reason else "int8"
