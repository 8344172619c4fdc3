"""Panel 6: predicted speedup against one knob, and what runs have measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rich.text import Text

from magicdec.cli.output.console import plain_text
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.forecast import Forecast
from magicdec.cli.tui.graphs import Point, curve_graph
from magicdec.cli.tui.knobs import TuiKnob, around
from magicdec.cli.tui.panels.base import Panel, faint
from magicdec.cli.tui.view import View
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import FIXED

WIDEST = 110
FINER = 4  # prices between two neighbouring values of the knob


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """What is drawn: the knob, its settings, and what prices settings."""

    knob: TuiKnob
    settings: Settings
    price: Callable[[Settings], Forecast | None]
    values: tuple[float, ...] = ()  # of a sweep; empty: around the knob's value
    unpriced: str = ""  # why the settings have no price, if they never have one


class CurvePanel(Panel):
    key, title = "6", "curve"
    terms = ("curve", "predicted", "speedup, decode", "Ω", "rough", "assumed")
    about = (
        "Speedup against the chosen knob, the others as they are set. Line: predicted. Circle: "
        "measured by a run whose other knobs are the same. Diamond: the knob's value now. The "
        "acceptance behind the line is measured where runs have measured it."
    )
    curve: Curve | None = None
    _priced: list[tuple[float, float]] | None = None  # the line, once it was needed

    def draw(self, curve: Curve) -> None:
        self.curve, self._priced = curve, None
        self.retitle(f"of speedup over {curve.knob.label}")
        if self.is_on_screen:
            self.refresh()

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        curve = self.curve
        if curve is None or height < 4 or width < 20:
            return []
        if not curve.knob.numeric:
            return [faint(f"{curve.knob.label} has no scale: the runs table compares its values")]
        width = min(width, WIDEST)
        value = curve.knob.value(curve.settings)
        if value is None:
            return [faint(f"set {curve.knob.label} to a number to see a curve")]
        values = curve.values or tuple(around(curve.knob, curve.settings))
        points = measured_points(curve, view, self.look.rule == "-")
        if self._priced is None:
            self._priced = _line(curve, values)
        line = self._priced
        if not line and not points:
            return [faint(plain_text(curve.unpriced, self.look) or "no prediction yet")]
        now = curve.price(curve.settings)
        if now is not None:
            sign = "+" if self.look.rule == "-" else "◆"
            points.insert(0, Point(value, now.speedup, sign, "bold"))  # hides nothing measured
        logarithmic = curve.knob.geometric
        graph = curve_graph(
            line, points, width=width, height=height - 1, ticks=values, logarithmic=logarithmic,
            symbols=self.look,
        )  # fmt: skip
        return [*graph, self._legend(bool(line), now, curve.unpriced)]

    def _legend(self, line: bool, now: Forecast | None, unpriced: str) -> Text:
        plain = self.look.rule == "-"
        legend = Text("      ", no_wrap=True)
        if line:
            legend.append("..." if plain else "───", "cyan").append(" predicted  ", "dim")
        legend.append("o" if plain else "●", "green").append(" measured", "dim")
        if now is not None:
            legend.append("  +" if plain else "  ◆", "bold").append(" now", "dim")
            guesses = ["rough costs"] * now.rough + ["assumed acceptance"] * now.assumed
            legend.append(f"  ({', '.join(guesses)})" if guesses else f"  {now.acceptance}", "dim")
        elif unpriced:
            legend.append(f"  {plain_text(unpriced, self.look)}", "dim")
        return legend


def measured_points(curve: Curve, view: View, plain: bool) -> list[Point]:
    """Of the finished runs that differ from the settings in the curve's knob alone."""
    wanted, points = _without(curve, curve.settings), []
    for run in view.runs:
        value = curve.knob.value(run.settings)
        if run.measured is None or not run.measured.final or not isinstance(value, int | float):
            continue  # all of a document, or a γ that changes, has no place on the scale
        if run.status == "finished" and _without(curve, run.settings) == wanted:
            style = "bold yellow" if run.number == view.pinned else "bold green"
            points.append(Point(float(value), run.measured.speedup, "o" if plain else "●", style))
    return points


def _without(curve: Curve, settings: Settings) -> Settings:
    put: dict[str, Any] = {curve.knob.name: curve.knob.knob.default}
    if curve.knob.name == "gamma":
        put["gamma_policy"] = FIXED.name
    return dataclasses.replace(settings, **put)


def _line(curve: Curve, values: tuple[float, ...]) -> list[tuple[float, float]]:
    line = []
    for x in _finer(values, curve.knob.geometric, curve.knob.knob.kind == "int"):
        forecast = _price(curve, x)
        if forecast is not None:
            line.append((x, forecast.speedup))
    return line


def _finer(values: tuple[float, ...], geometric: bool, whole: bool) -> list[float]:
    found: dict[float, None] = {}
    for low, high in pairwise(values):
        for part in range(FINER):
            share = part / FINER
            x = low * (high / low) ** share if geometric else low + (high - low) * share
            found[float(round(x)) if whole else x] = None
    return [*found, values[-1]]


def _price(curve: Curve, value: float) -> Forecast | None:
    number = int(value) if curve.knob.knob.kind == "int" else value
    try:
        return curve.price(curve.knob.put(curve.settings, number))
    except ConfigError:
        return None
