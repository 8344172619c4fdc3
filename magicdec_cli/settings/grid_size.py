"""How large a grid is: refused where no profile could hold it, else said before it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from magicdec.cli.output.numbers import clock, counted
from magicdec.engine.errors import require
from magicdec.profiles.recorded.reader import MAX_CELLS


def refuse_large(axes: Mapping[str, int], cells: int | None = None) -> None:
    """axes: how many values each has, by name; cells: how many they give, where that is not their
    product. Raises ConfigError, before anything of that size is made."""
    count = math.prod(axes.values()) if cells is None else cells
    named = {name: size for name, size in axes.items() if size > 1}
    require(
        count <= MAX_CELLS,
        f"{' × '.join(f'{size:,}' for size in named.values())} values of {', '.join(named)} are "
        f"{count:,} cells; {MAX_CELLS:,} is the most that a profile holds, sweep in wider steps",
    )


def size_line(cells: int, seconds: float, guessed: bool) -> str:
    """`432 cells, about 25:00`, and what that is worth."""
    if seconds <= 0:
        return f"{counted(cells, 'cell')} to measure"
    guess = ", guessed: this machine is not calibrated" if guessed else ""
    return f"{counted(cells, 'cell')} to measure, about {clock(max(1.0, seconds))}{guess}"
