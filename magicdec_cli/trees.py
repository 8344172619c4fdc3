"""The settings of trees: how often siblings are accepted, and the shape made from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from magicdec.engine.config import SIBLING_RATES, DecodeConfig
from magicdec.engine.errors import ConfigError

if TYPE_CHECKING:
    from magicdec.cli.knobs import Settings
    from magicdec.engine.request import Request


def sibling_rates(text: str | None) -> tuple[float, ...]:
    """What --tree-rates says: shares, or @FILE of a run; those of the default model without it.

    Raises ConfigError.
    """
    if text is None:
        return SIBLING_RATES
    if text.startswith("@"):
        from magicdec.profiles.measured_siblings import recorded_siblings

        return recorded_siblings(Path(text[1:]))
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"tree-rates must be shares such as .8,.4,.2, or @RUN.json, got {text!r}"
        ) from None


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
    from magicdec.cli.prediction import usable_calibration, work_of
    from magicdec.engine.trees.shape import ShapeSearch
    from magicdec.profiles.tree_choice import choose_tree

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
