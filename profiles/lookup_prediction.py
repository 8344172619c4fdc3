"""What lookup may be expected to have accepted, before a run: as on the end of its own prompts."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.profiles.costs.acceptance import conditional_rates
from magicdec.profiles.run_prediction import Assumed
from magicdec.profiles.survey.lookup import Row, lookup_walk
from magicdec.profiles.survey.replay import pooled

MOST_ROWS, MOST_TOKENS = 4, 256  # that are replayed


def expected_of_lookup(prompts: Sequence[Sequence[int]], new_tokens: int, gamma: int) -> Assumed:
    """Replays lookup over the last `new_tokens` tokens of the prompts, as if they were output.

    What a model writes may repeat more or less than its document does: this is a guess with a
    reason, no measurement.
    """
    rows = []
    for prompt in prompts[:MOST_ROWS]:
        count = min(new_tokens, MOST_TOKENS, len(prompt) // 2)
        if count > 1:
            rows.append(Row(prompt[:-count], prompt[-count:]))
    walks = [lookup_walk(row, gamma) for row in rows]
    emitted = sum(len(row.tokens) - 1 for row in rows)
    both = pooled(walks) if walks else None
    if both is None or not both.steps:
        return Assumed((0.0,), "0, the prompts' ends repeat nothing", share=0.0)
    steps = emitted - float(both.accepted.sum())
    rates = conditional_rates(both.acceptance_rate_per_position)
    mean = sum(rates) / len(rates)
    return Assumed(rates, f"{mean:.2f} as on the prompts' ends", share=both.steps / steps)
