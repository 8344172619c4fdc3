"""One step of speculative decoding, as the paper writes it (MagicDec, arXiv 2408.11049)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from magicdec.engine.accept.chain import Proposal, Rule, Verdict
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.clock import Clock
from magicdec.engine.drafters.base import Drafter
from magicdec.engine.events import TreeShare
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.finiteness import finite, require_finite
from magicdec.engine.rows import Row
from magicdec.kernels.transfer import to_device


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step gives one row: `accepted` of `drafted` tokens and one of the target's own."""

    tokens: list[int]
    accepted: int
    drafted: int
    tree: TreeShare | None = None
    rejected: tuple[int, ...] = ()  # the other tokens of a draft that is no tree


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

    A drafter may draft several tokens for a position: the tree of them, γ deep, is verified in one
    pass, too, and one of its branches, or its beginning, is accepted.
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
        nodes = None if proposal.tree is None else proposal.tree.nodes
        watching = None if drafter is None else drafter.observer
        access = cache.following(slots, fed.shape[1], nodes=nodes, observer=watching)
        logits = target.forward(fed, access)  # [n, G + 1, V]
        sound = finite(logits)  # [n, G + 1]
        logits = rule.penalised(rows, logits, [proposal.tokens], nodes)
        verdict = rule.accept(proposal, logits)
        # The step's only wait for the device: text and limits are decided on the host.
        results = _read(verdict, fed, sound, drafter, target.dtype)

    # 3. Commit: the pending token and the accepted drafts become part of both caches.
    with clock.phase("commit"):
        paths = [path for path, *_ in results]
        counts = [1 + len(path) for path in paths]
        cache.straighten(slots, paths)
        cache.advance(slots, counts)
        if drafter is not None:
            drafter.commit(slots, counts)
    outcomes = []
    for (path, said, following), (size, tree) in zip(
        results, proposal.shares(drafted, paths), strict=True
    ):
        n = len(path)
        rejected = () if tree else tuple(said[n:size])
        outcomes.append(Outcome([*said[:n], following], n, size, tree, rejected))
    return outcomes


def _read(
    verdict: Verdict, fed: Tensor, sound: Tensor, drafter: Drafter | None, dtype: torch.dtype
) -> list[tuple[list[int], list[int], int]]:
    """Of each row: where in the pass its accepted tokens stood, what stood along the path that they
    began, and the target's own. Raises NotFiniteError where they come from no numbers."""
    depth = verdict.path.shape[1]
    watched = [] if drafter is None else drafter.watching()
    drafts = [(one.who, sure) for one in watched if (sure := one.taken()) is not None]
    rows = torch.cat(
        (
            verdict.accepted[:, None],
            verdict.next[:, None],
            verdict.path,
            fed.gather(1, verdict.path),
            sound[:, :1],
            sound.gather(1, verdict.path),
            *(sure.expand(len(fed), 1) for _, sure in drafts),
        ),
        dim=1,
    ).tolist()
    found = []
    for accepted, following, *row in rows:
        path, said, root, judged, flags = _cut(row, depth, depth, 1, depth, len(drafts))
        require_finite([*root, *judged[:accepted]], "the model", dtype)
        for (who, _), flag in zip(drafts, flags, strict=True):
            require_finite([flag], who, dtype)
        found.append((path[:accepted], said, following))
    return found


def _cut(row: list[int], *widths: int) -> list[list[int]]:
    ends = list(accumulate(widths, initial=0))
    return [row[start:end] for start, end in pairwise(ends)]
