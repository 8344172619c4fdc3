"""The page's memory part: KV bytes of a row, and the largest batch of each mode."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from magicdec.cli.columns import Column, Row, render
from magicdec.cli.console import Symbols, plain_text
from magicdec.cli.heatmap import spread
from magicdec.cli.predict_input import Question
from magicdec.cli.report_view import size_text
from magicdec.profiles.costs.modes import Mode, Room, modes, room

MOST_CONTEXTS = 10
TITLES = {
    "plain": "plain", "standard": "standard", "sparse_self": "sparse self",
    "sparse_model": "sparse model",
}  # fmt: skip


def memory_table(asked: Question, width: int, look: Symbols) -> RenderableType:
    """By context, for the first budget; with more contexts than fit a page, some of them."""
    setup, axes = asked.setup, asked.axes
    compared = modes(setup, axes.budget[0], asked.standard)
    rooms = room(setup, axes, compared)
    shown = spread(len(axes.context), MOST_CONTEXTS)
    rows: list[Row] = []
    for index in shown:
        here = rooms[index * len(compared) : (index + 1) * len(compared)]
        sizes = (here[0].full_kv_row_bytes, here[-1].draft_kv_row_bytes)
        counts = {found.mode.name: found.largest_batch for found in here}
        rows.append({"context": here[0].context, "full": sizes[0], "draft": sizes[1], **counts})
    columns = [_count("context", 0, "context"), _size("full KV/row", 2, "full")]
    if setup.drafting.host is None:  # lookup keeps none; what the last mode keeps is not its own
        columns.append(_size("draft KV/row", 3, "draft"))
    columns += [_count(TITLES[mode.name], 1, mode.name) for mode in compared]
    table, _ = render(rows, columns, width, look)
    said = [_meaning(mode, rooms) for mode in compared[1:]]
    if len(shown) < len(axes.context):
        said.insert(0, f"{len(shown)} of {len(axes.context)} contexts are shown")
    return Group(
        Text(plain_text(_title(asked, rooms[0]), look), "bold"),
        table,
        *(Text(plain_text(line, look), "dim") for line in said),
    )


def _count(title: str, rank: int, name: str) -> Column:
    return Column(title, rank, lambda row, look: f"{row[name]:,}")


def _size(title: str, rank: int, name: str) -> Column:
    return Column(title, rank, lambda row, look: size_text(row[name]))


def _title(asked: Question, plain: Room) -> str:
    hardware = asked.setup.hardware
    size = size_text(hardware.device.memory_bytes)
    memory = size if hardware.count == 1 else f"{hardware.count} × {size}"
    kept = f" less {asked.setup.reserve:.0%}" if asked.setup.reserve else ""
    return f"largest batch that fits {memory}{kept}; weights {size_text(plain.weights_bytes)}"


def _meaning(mode: Mode, rooms: Sequence[Room]) -> str:
    drafting = mode.drafting
    assert drafting is not None, "plain decoding needs no explanation"
    extra = next(found.draft_weights_bytes for found in rooms if found.mode is mode)
    weights = f" and weights of {size_text(extra)}" if extra else ""
    kept = "its full KV cache" if drafting.budget is None else f"budget {drafting.budget:,}"
    return f"{TITLES[mode.name]}: {drafting.who} drafts with {kept}{weights}"
