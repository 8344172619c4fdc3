"""The shape of a draft tree, from its settings and this machine's calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magicdec.engine.config import DecodeConfig

if TYPE_CHECKING:
    from magicdec.cli.settings.knobs import Settings
    from magicdec.engine.request import Request


def tree_text(settings: Settings) -> str:
    """Which tree, and of how many tokens at most; empty where none is drafted."""
    drafted = settings.tree != "none" and settings.gamma > 0
    return f"{settings.tree} {settings.tree_nodes}" if drafted else ""


def with_shape(
    config: DecodeConfig, settings: Settings, env: Mapping[str, object],
    requests: Sequence[Request],
) -> tuple[DecodeConfig, str]:  # fmt: skip
    """The configuration with Sequoia's shape, and a line about it, which may be empty.

    With a calibration of this machine the shape is the one with the least time per token.
    """
    if config.tree != "sequoia" or config.gamma == 0:
        return config, ""
    from magicdec.cli.run.prediction import usable_calibration, work_of
    from magicdec.engine.trees.shape import ShapeSearch
    from magicdec.profiles.predict.settings import choose_tree

    calibration, _ = usable_calibration(settings, env)
    if calibration is None:
        search = ShapeSearch(config.tree_rates, nodes=config.tree_nodes, depth=config.gamma)
        shape = search.shape(config.tree_nodes, config.gamma)
        tokens = search.tokens(config.tree_nodes, config.gamma)
        why = f"{tokens:.2f} tokens per step expected; with a calibration its cost would count, too"
    else:
        work = work_of(settings, env, requests)
        chosen = choose_tree(calibration, work, config.tree_rates, nodes=config.tree_nodes)
        shape = chosen.shape
        why = (
            f"{chosen.tokens:.2f} tokens per step and a speedup of {chosen.speedup:.2f}× expected, "
            f"calibration of {calibration.created[:10]}"
        )
    line = f"tree of {len(shape.parents)} nodes, {shape.height} deep: {why}"
    return replace(config, tree_shape=shape.parents), line
