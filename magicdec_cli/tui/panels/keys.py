"""The last line: keys, each of them to click on. Where not all fit, the less needed ones go."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Footer

#: Actions, those first that are missed least. `?`, which lists all keys, and `q` never go.
SPARE = (
    "app.export", "pin", "app.tune", "step(False)", "app.explore", "pause", "app.stop",
)  # fmt: skip


class KeyLine(Footer):
    def compose(self) -> ComposeResult:
        keys, spare = list(super().compose()), list(SPARE)
        while spare and sum(map(_width, keys)) > self.size.width:
            gone = spare.pop(0)
            keys = [key for key in keys if getattr(key, "action", "") != gone]
        yield from keys

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.recompose)


def _width(key: Widget) -> int:
    """With the gap behind it."""
    parts = (getattr(key, name, "") for name in ("key_display", "description"))
    return len(" ".join(parts)) + 1
