"""What lookup may be expected to have accepted, before a run: as on the end of its own prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magicdec.profiles.costs.acceptance import AcceptanceRates, conditional_rates, pooled
from magicdec.profiles.survey.lookup import Row, lookup_walk

MOST_ROWS, MOST_TOKENS = 4, 256  # that are replayed


def expected_of_lookup(
    prompts: Sequence[Sequence[int]], new_tokens: int, gamma: int
) -> AcceptanceRates:
    """Replays lookup over the last `new_tokens` tokens of the prompts, as if they were output.

    What a model writes may repeat more or less than its document does: this is a guess with a
    reason, no measurement.
    """
    rows = []
    for prompt in prompts[:MOST_ROWS]:
        count = min(new_tokens, MOST_TOKENS, len(prompt) // 2)
        if count > 1:
            rows.append(Row(prompt[:-count], prompt[-count:]))
    emitted = sum(len(row.tokens) - 1 for row in rows)
    both = pooled(lookup_walk(row, gamma) for row in rows)
    if not both.steps:
        return AcceptanceRates((0.0,), "0, the prompts' ends repeat nothing", share=0.0)
    found = AcceptanceRates(
        conditional_rates(both.shares), share=both.steps / (emitted - sum(both.accepted))
    )
    return replace(found, source=f"{found.mean:.2f} as on the prompts' ends")
