"""How the main screen lays its panels out in each class of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

SizeClass = Literal["-tiny", "-compact", "-medium", "-large"]
SIZE_CLASSES: tuple[SizeClass, ...] = ("-tiny", "-compact", "-medium", "-large")
SHORT = 20  # lines below which the preview has one


#: Panels that a size class shows side by side, by their keys; "" has none of its own.
OVERVIEW: Mapping[SizeClass, str] = {"-tiny": "", "-compact": "1234", "-medium": "123457",
                                     "-large": "12345678"}  # fmt: skip


def size_class(width: int, height: int) -> SizeClass:
    """Tiny has a status and the speedup only; compact begins at 60 × 16 and fits 80 × 24."""
    if width < 60 or height < 16:
        return "-tiny"
    if width >= 160 and height >= 44:
        return "-large"
    if width >= 108 and height >= 32:
        return "-medium"
    return "-compact"


CSS = """
MainScreen { layout: vertical; overflow: hidden; }
MainScreen > #body { layout: grid; height: 1fr; width: 1fr; grid-gutter: 0; }
MainScreen TextPanel, MainScreen CurvePanel, MainScreen RunsPanel, MainScreen LogPanel {
    display: none;
}

MainScreen.-compact > #body { grid-size: 2 2; grid-columns: 2fr 3fr; grid-rows: 8fr 9fr; }
MainScreen.-short > #body { grid-rows: 1fr 1fr; }
MainScreen.-short > KnobsPanel > #preview { height: 1; }

MainScreen.-medium > #body { grid-size: 6 3; grid-rows: 11 1fr 1fr; }
MainScreen.-medium AcceptancePanel, MainScreen.-medium PhasesPanel,
MainScreen.-medium PositionsPanel, MainScreen.-medium SpeedupPanel { column-span: 2; }
MainScreen.-medium TextPanel { column-span: 4; display: block; }
MainScreen.-medium RunsPanel { column-span: 6; display: block; }

MainScreen.-large > #body { grid-size: 4 3; grid-rows: 12 1fr 12; }
MainScreen.-large TextPanel, MainScreen.-large CurvePanel { column-span: 2; display: block; }
MainScreen.-large RunsPanel { column-span: 3; display: block; }
MainScreen.-large LogPanel { display: block; }

MainScreen > #body.-one { grid-size: 1 1; grid-columns: 1fr; grid-rows: 1fr; }
MainScreen > #body.-one > Framed { display: none; column-span: 1; }
MainScreen > #body.-one > Framed.-stage { display: block; column-span: 1; }
MainScreen.-max > KnobsPanel { display: none; }

MainScreen.-tiny > #body, MainScreen.-tiny > KnobsPanel, MainScreen.-tiny > Footer {
    display: none;
}
MainScreen.-tiny > StatusLines { height: 1fr; }
MainScreen > Footer { background: transparent; height: 1; scrollbar-size: 0 0; }
"""
