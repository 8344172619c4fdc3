"""From settings to a drafter."""

from __future__ import annotations

from magicdec.engine.acceptance import make_rule
from magicdec.engine.cache import KVCache
from magicdec.engine.cascade import CascadeDrafter
from magicdec.engine.clock import Clock
from magicdec.engine.config import LOOKUP, DecodeConfig
from magicdec.engine.draft_model import ModelDrafter
from magicdec.engine.draft_view import make_view
from magicdec.engine.drafter import Drafter, SelfDrafter, draft_weights
from magicdec.engine.errors import require
from magicdec.engine.lookup import LookupDrafter
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.selection import draft_selector
from magicdec.engine.trees.drafter import TreeDrafter
from magicdec.engine.trees.making import make_grower
from magicdec.engine.views.base import DraftView


def make_drafter(
    cache: KVCache, config: DecodeConfig, draft: Decoder | None, *, context: int, chunk: int,
    clock: Clock,
) -> Drafter | None:  # fmt: skip
    """None for plain decoding. draft: the model that `config.draft` names, if it names one.

    context: tokens of the longest prompt; chunk: those of a prefill pass. Raises ConfigError.
    """
    stop = config.gamma_policy.stop
    if config.gamma == 0:
        return None
    if config.draft == LOOKUP:
        return LookupDrafter(cache)
    selector = draft_selector(config)
    weights = draft_weights(config, cache.model.device, cache.model.dtype)
    if config.draft_model is not None:
        assert draft is not None, "the engine was made without the draft model"
        return ModelDrafter(
            cache, draft, selector, config, weights, context=context, chunk=chunk, clock=clock
        )
    model, layers = cache.model, config.draft_layers
    if layers is not None:
        check_layers(model.spec, layers)
        model = model if config.inner else model.first(layers)
    view = make_view(
        cache, selector, budget=config.budget, context=context, growth=config.max_new_tokens,
        gamma=config.scratch, model=model, clock=clock,
    )  # fmt: skip
    if config.drafts_trees:
        return TreeDrafter(model, view, weights, make_grower(config))
    if config.inner is None:
        return SelfDrafter(model, view, weights, stop)

    def inner(middle: Decoder, view: DraftView) -> Drafter:
        if layers is None:
            return LookupDrafter(cache)
        return SelfDrafter(middle.first(layers), view, "same")  # its weights are the middle's

    rule = make_rule(
        config.sampling, slots=cache.rows, positions=config.scratch + 1, device=cache.model.device
    )
    return CascadeDrafter(model, view, weights, rule, inner, stop)


def check_layers(spec: ModelSpec, layers: int) -> None:
    """Raises ConfigError unless the model has more layers than its draft."""
    require(
        layers < spec.layers,
        f"draft layers:{layers} needs a model of more layers, this one has {spec.layers}; "
        f"give layers:{max(1, spec.layers // 3)}, or self for all of them",
    )
