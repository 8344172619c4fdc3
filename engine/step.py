"""One step of speculative decoding, as the paper writes it (MagicDec, arXiv 2408.11049)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from magicdec.engine.acceptance import Proposal, Rule
from magicdec.engine.cache import KVCache
from magicdec.engine.clock import Clock
from magicdec.engine.drafter import Drafter
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.row import Row
from magicdec.kernels.transfer import to_device


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step gives one row: `accepted` of `drafted` tokens and one of the target's own."""

    tokens: list[int]
    accepted: int
    drafted: int


def speculative_step(
    target: Decoder,
    cache: KVCache,
    drafter: Drafter | None,
    rule: Rule,
    rows: Sequence[Row],
    drafted: Sequence[int],
    clock: Clock,
) -> list[Outcome]:
    """Draft γ tokens, verify them in one pass, commit what is accepted; γ = 0 is plain decoding.

    drafted: the most tokens each row may draft, its own γ. A row near its limit takes part with
    fewer than its batch mates, so that what it says never depends on them. A drafter may propose
    less, see `Proposal.lengths`.
    """
    slots = [row.slot for row in rows]
    gamma = max(drafted)
    rule.begin(slots, [len(row.tokens) for row in rows], drafted)
    # Each row's last token is known but in no cache yet: every pass begins with it.
    pending = to_device([row.tokens[-1:] for row in rows], target.device)  # [n, 1]

    # 1. Draft: γ tokens, one after the other, over the sparse part of the cache.
    proposal = Proposal(pending[:, :0])
    if drafter is not None and gamma > 0:
        with clock.phase("draft"):
            proposal = drafter.propose(rows, pending, drafted, rule)

    # 2. Verify: one pass over the whole cache judges all of them.
    with clock.phase("verify"):
        fed = torch.cat((pending, proposal.tokens), dim=1)  # [n, G + 1]
        logits = target.forward(fed, cache.following(slots, fed.shape[1]))  # [n, G + 1, V]
        verdict = rule.accept(proposal, logits)
        # The step's only wait for the device: text and limits are decided on the host.
        results = torch.cat(
            (verdict.accepted[:, None], verdict.next[:, None], proposal.tokens), dim=1
        ).tolist()

    # 3. Commit: the pending token and the accepted drafts become part of both caches.
    with clock.phase("commit"):
        counts = [1 + accepted for accepted, *_ in results]
        cache.advance(slots, counts)
        if drafter is not None:
            drafter.commit(slots, counts)
    return [
        Outcome([*drafts[:n], following], n, own)
        for (n, following, *drafts), own in zip(results, proposal.drafted(drafted), strict=True)
    ]
