"""Teacher forcing: what a model says of each token of a text that is given to it.

In a run a token drafted as the j-th of its step saw the draft's own K/V of j tokens and the
target's before those. Which tokens begin a step is not known here, and differs from γ to γ: a
draft begins at every `BLOCK`-th token. This is the survey's one approximation. The more of its own
K/V a draft sees, the less it agrees with the target: blocks should hold as many as the steps that
are asked about, on average.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from magicdec.engine.accept.penalties import make_penalties
from magicdec.engine.accept.sampling import distribution
from magicdec.engine.cache.prefill import PREFILL_CHUNK
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.drafters.make import make_drafter
from magicdec.engine.drafters.other_model import ModelDrafter
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.finiteness import finite, require_finite, rounding
from magicdec.engine.rows import Said
from magicdec.engine.session import Session
from magicdec.kernels.transfer import to_device
from magicdec.profiles.acceptance.reader import Reader, TracedRow
from magicdec.profiles.acceptance.replay import Kept


def span(tokens: Sequence[int], start: int, width: int) -> list[int]:
    """`width` tokens from `start` on; where they end, the last one again."""
    part = list(tokens[start : start + width])
    return part + part[-1:] * (width - len(part))


class Chances:
    """What tokens are drawn from, in one reading of the rows' texts. target: with the vocabulary of
    the logits."""

    def __init__(
        self, sampling: SamplingConfig, rows: Sequence[TracedRow], target: Decoder
    ) -> None:
        self._sampling = sampling
        self._penalties = make_penalties(
            sampling, slots=1 + max(row.slot for row in rows), device=target.device,
            vocabulary=target.spec.vocab_size,
        )  # fmt: skip

    def of(self, rows: Sequence[TracedRow], start: int, logits: Tensor, tokens: Tensor) -> Tensor:
        """Of the texts' tokens [n, T + 1] from `start` on all but the first, by the logits
        [n, T, V] before each: float64 [n, T]; greedily 1 for the likeliest, else 0."""
        if self._penalties is not None:
            said = [Said(row.request, row.slot, list(row.tokens[: start + 1])) for row in rows]
            logits = self._penalties.apply(said, logits, [tokens[:, 1:-1]])
        following = tokens[:, 1:]
        if self._sampling.greedy:
            return (logits.argmax(dim=-1) == following).double()
        probs = distribution(logits, self._sampling)
        return probs.gather(2, following[..., None])[..., 0].double()


#: A token of a block sees (BLOCK - 1) / 2 = 1 token's K/V of the draft on average, one of a step
#: with γ 1 to 6 at α .8 sees .0 to 1.8. Where the draft agrees least (α .82), lengths at γ 3 were
#: 1.6% longer with blocks of 2 than of 4, and 1.0% shorter with 8.
BLOCK = 3


def chances(
    model: Decoder, reader: Reader, rows: Sequence[TracedRow], sampling: SamplingConfig
) -> list[Kept]:
    """The model's probability of each row's tokens after its first: [fed] each.

    Under greedy decoding that is 1 for the likeliest token and 0 for others. model: with the
    weights that draft. Leaves the target's cache as it was, but for rounding.
    """
    judged = Chances(sampling, rows, model)
    found = [np.empty(row.fed) for row in rows]
    for start in range(0, max(row.fed for row in rows), reader.width):
        active = [i for i, row in enumerate(rows) if row.fed > start]
        part = [rows[i] for i in active]
        counts = [min(reader.width, row.fed - start) for row in part]
        new = max(counts)
        # Rows that end within the pass are filled up; what follows a token does not change it.
        spans = [span(row.tokens, start, new + 1) for row in part]
        tokens = to_device(spans, model.device)  # [n, new + 1]
        with rounding("the draft", model.dtype):
            logits = model.forward(tokens[:, :-1], reader.access(part, start, new))  # [n, new, V]
        require_finite(finite(logits).flatten().tolist(), "the draft", model.dtype)
        of_tokens = judged.of(part, start, logits, tokens).cpu().numpy()
        for i, count, values in zip(active, counts, of_tokens, strict=True):
            found[i][start : start + count] = values[:count]
        reader.passed(part, tokens[:, :-1], counts)
    return found


def kept(target: Sequence[Kept], draft: Sequence[Kept]) -> list[Kept]:
    """What each token's chance of being an accepted draft is, see `replay`.

    Rounding may put a token that was drawn at the edge of top-k or top-p just outside: p is 0 then.
    """
    least = np.finfo(np.float64).tiny
    return [np.minimum(1.0, q / np.maximum(p, least)) for p, q in zip(target, draft, strict=True)]


def own_cache_chances(
    session: Session, rows: Sequence[TracedRow], config: DecodeConfig, block: int
) -> list[Kept]:
    """What the draft model of `config` says of each row's tokens after its first, see
    `forced.chances`. Its cache is made for this and holds the prompts once more."""
    cache, longest = session.cache, max(row.prompt for row in rows)
    drafter = make_drafter(
        cache, config, session.drafts.model(config), context=longest, chunk=PREFILL_CHUNK,
        clock=Clock(),
    )  # fmt: skip
    assert isinstance(drafter, ModelDrafter)
    for row in rows:
        drafter.admit(row.slot)
    drafter.prepare()
    _end_prompts(drafter, session, rows)
    spec = session.drafts.spec(config)
    assert spec is not None
    chances = Chances(config.sampling, rows, session.model)
    found = [np.empty(row.fed) for row in rows]
    for start in range(0, max(row.fed for row in rows), block):
        active = [i for i, row in enumerate(rows) if row.fed > start]
        counts = [min(block, rows[i].fed - start) for i in active]
        slots = [rows[i].slot for i in active]
        # Rows that end within the block are filled up; what follows a token does not change it.
        spans = [span(rows[i].tokens, start, max(counts) + 1) for i in active]
        tokens = to_device(spans, session.device)  # [n, T + 1]
        fed = tokens[:, :-1].clamp(max=spec.vocab_size - 1)  # padding means nothing
        logits = drafter.read(slots, fed)
        flag = drafter.watched.taken()
        require_finite([flag is None or bool(flag)], drafter.watched.who, session.dtype)
        of_tokens = chances.of([rows[i] for i in active], start, logits, tokens)
        for i, count, values in zip(active, counts, of_tokens.cpu().numpy(), strict=True):
            found[i][start : start + count] = values[:count]
        drafter.commit(slots, counts)
    return found


def _end_prompts(drafter: ModelDrafter, session: Session, rows: Sequence[TracedRow]) -> None:
    """A draft model's cache stays a token behind: here it gets the prompts' last ones."""
    slots = [row.slot for row in rows]
    prompts = [session.cache.prompts[slot] for slot in slots]
    last = [[int(prompt.tokens[-1])] for prompt in prompts if prompt is not None]
    drafter.read(slots, to_device(last, session.device))
    drafter.commit(slots, [1] * len(slots))
