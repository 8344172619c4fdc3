"""The first two lines: what runs where, and how far it is."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Footer

from magicdec.cli.output.console import Symbols, plain_text
from magicdec.cli.output.numbers import bar, clock, settings_line
from magicdec.cli.tui.panels.speedup import lossless_mark, speedup_lines
from magicdec.cli.tui.view import RunView, View

SHARE_BAR = 12


class StatusLines(Widget):
    """Title and settings; on a screen too small for panels also the speedup."""

    DEFAULT_CSS = """
    StatusLines { height: 2; width: 1fr; }
    """

    def __init__(self, look: Symbols, model: str) -> None:
        super().__init__()
        self._look, self._model = look, model
        self._view: View | None = None
        self.tiny = False

    def show(self, view: View) -> None:
        self._view = view
        self.refresh()

    def render(self) -> Text:
        view, look = self._view, self._look
        if view is None:
            return Text(f" magicdec  {self._model}")
        width = self.size.width
        lines = [_sides(self._title(view), state_mark(view, look), width)]
        lines.append(_sides(*self._second(view), width))
        if self.tiny and view.shown is not None:
            lines += speedup_lines(view.shown, width, look)[:2]
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    def _title(self, view: View) -> list[Text]:
        dot = self._look.dot
        info = view.shown.info if view.shown is not None else None
        name = Text.assemble((" magicdec ", "bold reverse"), " ", no_wrap=True)
        parts = [name.append(info.model if info else self._model, "bold")]
        if view.demo:
            parts.append(Text("  recorded session", "dim italic"))
        if info is not None:
            parts.append(Text(f" {dot} {info.device} {info.dtype}", "dim"))
            parts.append(Text(f" {dot} {info.selector}", "dim"))
        return parts

    def _second(self, view: View) -> tuple[list[Text], Text]:
        look, run = self._look, view.shown
        waiting = view.phase in ("loading", "tuning") or run is None or not run.info
        if view.loading is not None and waiting:
            return [_loading(view, look)], Text("")
        if run is None or run.info is None:
            hint = {
                "idle": [" r runs the settings below", ", tab chooses one, [ ] changes it",
                         ", ? explains"],
                "failed": [" nothing is loaded; d opens other documents"],
                "gone": [" the engine ended; r starts it again"],
            }.get(view.phase, [" starting"])  # fmt: skip
            return [Text(part, "dim") for part in hint], Text("")
        facts = [
            Text.assemble((f" {name} ", "dim"), (f"{value} ", "bold"))
            for name, value in settings_line(run.info, look)
        ]
        return facts, _progress(run, look)


def _sides(left: list[Text], right: Text, width: int) -> Text:
    """As many parts of the left as there is room for, none cut, and the right at its edge."""
    line = Text(no_wrap=True, overflow="crop")
    for part in left:
        if line and line.cell_len + part.cell_len + 1 + right.cell_len > width:
            break
        line.append_text(part)
    gap = max(width - line.cell_len - right.cell_len, 1)
    return line.append(" " * gap).append_text(right)


def state_mark(view: View, look: Symbols) -> Text:
    """What goes on, in a word with a mark; not by colour alone."""
    run, ascii = view.shown, look.rule == "-"
    play, pause, stop, fail = (">", "||", "#", "x") if ascii else ("▶", "‖", "■", "✗")
    text = Text(no_wrap=True)
    if view.paused:
        text.append(f"{pause} view paused  ", "bold yellow")
    if view.phase in ("loading", "tuning"):
        doing: str = "stopping" if view.stopping else view.phase
        return text.append(f"{doing} ", "bold")
    ended = {"failed": f"{fail} not loaded ", "gone": f"{fail} engine ended, r restarts "}
    if view.phase in ended or run is None:
        return text.append(ended.get(view.phase, "ready "), "bold")
    style, mark = {
        "finished": ("green", look.check), "stopped": ("yellow", stop), "failed": ("red", fail),
    }.get(run.status, ("cyan", play))  # fmt: skip
    word = "stopping" if view.stopping and style == "cyan" else run.status
    if run.prefill is not None and word == run.status:
        word = "prefill"
    text.append(f"{mark} run {run.number} {word}", f"bold {style}")
    if view.sweep is not None and style == "cyan":
        at, total = view.sweep
        text.append(f"  {at} of {total}", "bold")
    return text.append(f"  {clock(run.elapsed)} ", "dim")


def _loading(view: View, look: Symbols) -> Text:
    loading = view.loading
    assert loading is not None
    text = Text(f" {plain_text(loading.what, look)} ", no_wrap=True)
    if loading.share is not None:
        text.append_text(bar(loading.share, SHARE_BAR, "green", look))
        text.append(f" {loading.share:.0%}", "dim")
    return text


def _progress(run: RunView, look: Symbols) -> Text:
    if run.tally is None or run.prefill is not None:
        return Text("")
    if run.status in ("checking", "finished"):
        return Text.assemble(("lossless ", "dim"), no_wrap=True).append_text(
            lossless_mark(run, look)
        )
    text = Text(no_wrap=True)
    text.append_text(bar(run.share, SHARE_BAR, "green", look)).append(f" {run.share:>4.0%}", "dim")
    steps = f"{run.tally.steps:,} step{'s' * (run.tally.steps != 1)}"
    return text.append(f"  {steps} ", "dim")


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
