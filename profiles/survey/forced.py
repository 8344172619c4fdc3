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

from magicdec.engine.config import SamplingConfig
from magicdec.engine.finiteness import finite, require_finite, rounding
from magicdec.engine.model.decoder import Decoder
from magicdec.kernels.transfer import to_device
from magicdec.profiles.survey.reading import Reader
from magicdec.profiles.survey.replay import Kept
from magicdec.profiles.survey.tokens import Chances, span
from magicdec.profiles.survey.trace import TracedRow

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
