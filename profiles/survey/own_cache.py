"""Teacher forcing of a draft model, whose cache is its own: it reads the text as a run feeds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_model import ModelDrafter
from magicdec.engine.drafting import make_drafter
from magicdec.engine.finiteness import require_finite
from magicdec.engine.prefill import PREFILL_CHUNK
from magicdec.engine.session import Session
from magicdec.kernels.transfer import to_device
from magicdec.profiles.survey.replay import Kept
from magicdec.profiles.survey.tokens import Chances, span
from magicdec.profiles.survey.trace import TracedRow


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
