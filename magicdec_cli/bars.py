"""Bars on a fixed 0..1 scale: a scale that follows the data would lie about rates."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.console import Symbols


def bar(share: float, width: int, style: str, symbols: Symbols) -> Text:
    """`share` of `width` cells filled, in eighths where the terminal has the characters."""
    share = min(max(share, 0.0), 1.0)
    steps = len(symbols.parts)
    eighths = round(share * width * steps)
    whole, part = divmod(eighths, steps)
    filled = symbols.full * whole + (symbols.parts[part] if part else "")
    text = Text(filled, style=style)
    text.append(symbols.empty * (width - len(filled)), style="bright_black")
    return text


def rate(value: float | None, decimals: int = 2) -> str:
    """A rate in 0..1 as people write them: .53, 1.00; a dash when there is none."""
    if value is None:
        return "-"
    text = f"{value:.{decimals}f}"
    return text.removeprefix("0") if text.startswith("0.") else text


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
