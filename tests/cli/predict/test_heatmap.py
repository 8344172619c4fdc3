"""The map of speedups, on a terminal and as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.cli.output.console import ASCII, Symbols
from magicdec.cli.output.heatmap import Map, color, heat_lines, ink, short, spread
from magicdec.cli.output.heatmap_svg import heat_svg


def a_map(speedup: list[list[float]], fits: list[list[bool]] | None = None) -> Map:
    values = np.array(speedup)
    rows, columns = values.shape
    return Map(
        tuple(2**i for i in range(rows)), tuple(1000 * 2**i for i in range(columns)),
        values, np.array(fits) if fits else np.ones(values.shape, bool),
    )  # fmt: skip


def drawn(shown: Map, width: int = 80, look: Symbols | None = None) -> list[str]:
    return [line.plain for line in heat_lines(shown, width, look or Symbols())]


def test_a_map_reads_without_colour() -> None:
    shown = a_map([[0.9, 0.95, 1.2], [0.8, 1.1, 1.5]], [[True] * 3, [True, True, False]])
    assert drawn(shown)[:4] == [
        "B    1,000   2,000   4,000",
        "1   ▼0.90   ▼0.95 ┃ ▲1.20 ",
        "          ┏━━━━━━━┛       ",
        "2   ▼0.80 ┃ ▲1.10  ▲1.50! ",
    ]
    assert "does not fit" in drawn(shown)[4]


def test_a_map_in_ascii() -> None:
    lines = drawn(a_map([[0.9, 1.2], [1.1, 1.5]]), look=ASCII)
    assert lines[1:4] == [
        "1   v0.90 | ^1.20 ",
        "   =======+       ",
        "2   ^1.10   ^1.50 ",
    ]
    assert all(line.isascii() for line in lines)


def test_no_line_where_nothing_crosses() -> None:
    text = "\n".join(drawn(a_map([[1.2, 1.3], [1.1, 1.5]]))[:-1])
    assert "┃" not in text and "━" not in text


@pytest.mark.parametrize("columns", [1, 3, 9, 12, 40, 500])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_map_keeps_within_its_width_and_says_what_it_leaves_out(columns: int, width: int) -> None:
    rng = np.random.default_rng(columns)
    shown = Map(
        tuple(range(1, 61)), tuple(range(1000, 1000 + columns)),
        rng.uniform(0.4, 30, (60, columns)), rng.random((60, columns)) < 0.5,
    )  # fmt: skip
    lines = drawn(shown, width)
    cells = [line for line in lines if line.lstrip()[:1].isdigit() and "shown" not in line]
    assert max(len(line) for line in [lines[0], *cells]) <= width
    assert len(cells) == 24 and cells[0].startswith(" 1 ") and cells[-1].startswith("60 ")
    assert "24 of 60 batches" in lines[-1]


@given(st.integers(1, 400), st.integers(1, 400))
def test_spread_takes_both_ends_evenly(length: int, most: int) -> None:
    found = list(spread(length, most))
    assert len(found) == min(length, most) == len(set(found))
    assert found[0] == 0 and (most == 1 or found[-1] == length - 1)
    gaps = np.diff(found)
    assert gaps.size == 0 or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (512, "512"),
        (1000, "1k"),
        (1536, "1.5k"),
        (9960, "10k"),
        (131072, "131k"),
        (2_000_000, "2M"),
    ],
)
def test_short_numbers(tokens: int, text: str) -> None:
    assert short(tokens) == text


@given(st.floats(0.01, 100))
def test_colours_are_colours_on_which_the_ink_is_readable(speedup: float) -> None:
    background = color(speedup)
    assert all(0 <= channel <= 255 for channel in background)
    # Relative luminance and contrast as WCAG defines them; 3 suffices for marks and large text.
    light = sum(
        weight * ((c / 255 / 12.92) if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4)
        for weight, c in zip((0.2126, 0.7152, 0.0722), background, strict=True)
    )
    contrast = (light + 0.05) / 0.05 if ink(background) == "black" else 1.05 / (light + 0.05)
    assert contrast >= 3
    red, _, blue = background
    assert speedup == 1 or (blue >= red) == (speedup > 1) or abs(blue - red) <= 1


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f"{{http://www.w3.org/2000/svg}}{tag}")


def test_the_svg_draws_every_cell_and_the_line_between_them() -> None:
    shown = a_map([[0.9, 0.95, 1.2], [0.8, 1.1, 1.5]], [[True] * 3, [True, True, False]])
    svg = heat_svg(shown, "a < b & c", ["a note"])
    texts = [element.text for element in elements(svg, "text")]
    for text in ("0.90", "1.50!", "a < b & c", "a note", "1k", "4k", "break-even"):
        assert text in texts
    line = elements(svg, "path")[0].attrib["d"]
    assert line.count("v") == 2 and line.count("h") == 1  # three edges cross break-even
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_the_svg_of_a_dense_grid_stays_small() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(0.5, 3, (1000, 1000))
    dense = Map(tuple(range(1, 1001)), tuple(range(1, 1001)), values, values < 2)
    svg = heat_svg(dense, "dense", [])
    assert len(elements(svg, "rect")) < 50_000 and len(svg) < 10_000_000
    assert any("of 1,000 contexts" in (e.text or "") for e in elements(svg, "text"))
