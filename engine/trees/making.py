"""From settings to trees."""

from __future__ import annotations

import torch

from magicdec.engine.config import DecodeConfig
from magicdec.engine.sampling import Noise
from magicdec.engine.trees.growth import Grower
from magicdec.engine.trees.rules import GreedyWalk, ResidualWalk, SampledWalk, TreeRule
from magicdec.engine.trees.sequoia import Sequoia
from magicdec.engine.trees.shape import ShapeSearch, TreeShape
from magicdec.engine.trees.specexec import SpecExec


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
