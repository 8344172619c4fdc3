"""Makes the drafter that the settings name: self, model, lookup, cascade or tree."""

from __future__ import annotations

from collections.abc import Callable

import torch

from magicdec.engine.accept.chain import make_rule
from magicdec.engine.accept.penalties import Penalties
from magicdec.engine.accept.sampling import Noise
from magicdec.engine.accept.tree import GreedyWalk, ResidualWalk, SampledWalk, TreeRule
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig
from magicdec.engine.drafters.base import Drafter, SelfDrafter, draft_weights
from magicdec.engine.drafters.cascade import CascadeDrafter, EarlyExit
from magicdec.engine.drafters.lookup import LookupDrafter
from magicdec.engine.drafters.other_model import ModelDrafter
from magicdec.engine.drafters.tree import TreeDrafter
from magicdec.engine.errors import require
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.selection import draft_selector
from magicdec.engine.trees.grow import Grower
from magicdec.engine.trees.sequoia import Sequoia
from magicdec.engine.trees.shape import ShapeSearch, TreeShape
from magicdec.engine.trees.specexec import SpecExec
from magicdec.engine.views.base import DraftView
from magicdec.engine.views.make import make_view


def make_grower(config: DecodeConfig) -> Grower:
    """Raises ConfigError for a shape that is no tree."""
    if config.tree == "specexec":
        return SpecExec(config.tree_nodes, config.gamma)
    return Sequoia(sequoia_shape(config))


def sequoia_shape(config: DecodeConfig) -> TreeShape:
    """The given shape; else the best of `tree_nodes` nodes and γ generations."""
    if config.tree_shape:
        return TreeShape(config.tree_shape)
    search = ShapeSearch(config.tree_rates, nodes=config.tree_nodes, depth=config.gamma)
    return search.shape(config.tree_nodes, config.gamma)


def make_tree_rule(
    config: DecodeConfig, *, slots: int, positions: int, device: torch.device
) -> TreeRule:
    """positions: the most tokens a row may emit, drafts included."""
    sampling = config.sampling
    if sampling.greedy:
        return GreedyWalk()
    seed = sampling.seed or 0
    if config.tree == "specexec":
        return SampledWalk(sampling, Noise(seed, slots, positions, device))
    siblings = sequoia_shape(config).width
    return ResidualWalk(sampling, Noise(seed, slots, positions, device, siblings=siblings))


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
