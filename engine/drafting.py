"""From settings to a drafter."""

from __future__ import annotations

from collections.abc import Callable

from magicdec.engine.acceptance import make_rule
from magicdec.engine.cache import KVCache
from magicdec.engine.cascade import CascadeDrafter
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_model import ModelDrafter
from magicdec.engine.draft_view import make_view
from magicdec.engine.drafter import Drafter, SelfDrafter, draft_weights
from magicdec.engine.errors import require
from magicdec.engine.inner import EarlyExit
from magicdec.engine.lookup import LookupDrafter
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.penalties import Penalties
from magicdec.engine.selection import draft_selector
from magicdec.engine.trees.drafter import TreeDrafter
from magicdec.engine.trees.making import make_grower
from magicdec.engine.views.base import DraftView


def make_drafter(
    cache: KVCache, config: DecodeConfig, draft: Decoder | None, *, context: int, chunk: int,
    clock: Clock, penalties: Penalties | None = None,
) -> Drafter | None:  # fmt: skip
    """None for plain decoding. draft: the model that `config.draft` names, if it names one.

    context: tokens of the longest prompt; chunk: those of a prefill pass; penalties: those of the
    run, which apply inside a cascade, too. Raises ConfigError.
    """
    who, stop = config.who, config.gamma_policy.stop
    if config.gamma == 0:
        return None
    if who.kind == "lookup":
        return LookupDrafter(cache)
    selector = draft_selector(config)
    weights = draft_weights(config, cache.model.device, cache.model.dtype)
    other = None
    if who.model is not None:
        assert draft is not None, "the engine was made without the draft model"
        other = ModelDrafter(
            cache, draft, selector, config, weights, context=context, chunk=chunk, clock=clock
        )
        other.watched.who = f"draft model {who.model}"
        if not who.cascades:
            return other
    model, layers = cache.model, who.layers
    if layers is not None:
        check_layers(model.spec, layers)
        model = model if who.cascades else model.first(layers)
    view = make_view(
        cache, selector, budget=config.budget, context=context, growth=config.max_new_tokens,
        gamma=config.scratch, model=model, clock=clock,
    )  # fmt: skip
    if config.drafts_trees:
        return TreeDrafter(model, view, weights, make_grower(config))
    if not who.cascades:
        return SelfDrafter(model, view, weights, stop)
    rule = make_rule(
        config.sampling, slots=cache.rows, positions=config.scratch + 1, device=cache.model.device
    )
    rule.penalties = penalties
    inner = _early_exit(view, layers) if layers else _alone(other or LookupDrafter(cache))
    return CascadeDrafter(model, view, weights, rule, inner, stop)


def _early_exit(view: DraftView, layers: int) -> Callable[[Decoder], Drafter]:
    """Its weights are the self-draft's, also where those are int8."""
    return lambda middle: EarlyExit(middle.first(layers), view, "same")


def _alone(drafter: Drafter) -> Callable[[Decoder], Drafter]:
    """One that has no use for the self-draft's layers."""
    return lambda middle: drafter


def check_layers(spec: ModelSpec, layers: int) -> None:
    """Raises ConfigError unless the model has more layers than its draft."""
    require(
        layers < spec.layers,
        f"draft layers:{layers} needs a model of more layers, this one has {spec.layers}; "
        f"give layers:{max(1, spec.layers // 3)}, or self for all of them",
    )
