"""How much room a draft model needs, and how much of a prompt it sees."""

from __future__ import annotations

from dataclasses import dataclass

from magicdec.engine.config import INNER_GAMMA, DecodeConfig
from magicdec.engine.draft_view import view_capacity
from magicdec.engine.errors import require
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.selectors.base import DynamicSelector, KVSelector


@dataclass(frozen=True, slots=True)
class DraftRoom:
    """Entries that a draft model's caches hold, for memory forecasts and for the caches."""

    prompt: int  # tokens of a prompt that the model sees, its last ones
    full: int  # of its full cache, per row of it
    full_rows: int  # all rows, or one that every prompt passes through on its way to the view
    view: int  # of the compact view, per row; 0: it shares the full cache
    scratch: int  # of either, the entries beyond the valid ones

    @classmethod
    def of(
        cls, spec: ModelSpec, selector: KVSelector, config: DecodeConfig, *, rows: int, context: int
    ) -> DraftRoom:
        """Raises ConfigError when new tokens alone fill the window that the model was trained for,
        and for a selector that needs the target's own queries.

        Of a longer prompt it sees the end, at positions from 0 on: inside the trained window it
        predicts well, beyond it it does not, and a draft need not know the whole context.
        """
        require(
            not (isinstance(selector, DynamicSelector) and selector.refresh),
            f"selector {config.selector} chooses with the queries of the model that verifies, and "
            f"draft {config.who.model} has others; use --draft self or another selector",
        )
        # A row that is almost full takes part in a round with as many tokens as its mates.
        scratch = config.gamma + (INNER_GAMMA if config.who.cascades else 1)
        growth = config.max_new_tokens + scratch - 1
        left = spec.trained_window - growth
        require(
            left >= 1,
            f"draft {config.who.model}: its trained window of {spec.trained_window} tokens has "
            f"no room beside {config.max_new_tokens} new ones; lower --max-new-tokens or choose "
            "another draft",
        )
        prompt = min(context, left)
        view = view_capacity(
            selector, budget=config.budget, context=prompt, growth=config.max_new_tokens,
            gamma=scratch,
        )  # fmt: skip
        if view:
            return cls(prompt, prompt, 1, view, scratch)
        return cls(prompt, prompt + growth + 1, rows, 0, scratch)
