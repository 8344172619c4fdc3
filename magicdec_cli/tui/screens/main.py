"""The main screen: panels, knobs, and the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from magicdec.cli.tui.controller import Controller
from magicdec.cli.tui.knobs import OFFERS, Change, TuiKnob, draft_ways, tui_knobs
from magicdec.cli.tui.panels.acceptance import AcceptancePanel, PositionsPanel
from magicdec.cli.tui.panels.base import Framed, Styled
from magicdec.cli.tui.panels.curve import Curve, CurvePanel
from magicdec.cli.tui.panels.knobs import KnobField, KnobsPanel, preview_lines
from magicdec.cli.tui.panels.phases import PhasesPanel
from magicdec.cli.tui.panels.runs import RunsPanel
from magicdec.cli.tui.panels.speedup import SpeedupPanel
from magicdec.cli.tui.panels.status import KeyLine, StatusLines
from magicdec.cli.tui.panels.text import LogPanel, TextPanel
from magicdec.cli.tui.screens.layout import CSS, SHORT, SIZE_CLASSES, size_class
from magicdec.cli.tui.screens.stage import Staged
from magicdec.cli.tui.view import View, Viewer
from magicdec.engine.errors import ConfigError

INTERVAL = 0.2  # seconds between two views while a run goes on
FIRST_KNOB = "budget"


class Host(Styled, Protocol):
    """What this screen asks of the app."""

    @property
    def controller(self) -> Controller: ...
    @property
    def demo(self) -> bool: ...
    def tell(self, title: str, text: str) -> None:
        """A note that goes away by itself."""

    def offer(self, knob: TuiKnob, put: Callable[[Change], None]) -> None:
        """A list of the knob's values."""

    def help_on(self, panel: Framed | None, panels: Sequence[Framed]) -> None: ...


class MainScreen(Staged):
    DEFAULT_CSS = CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "app.run", "run"),
        Binding("x", "app.stop", "stop"),
        Binding("space", "pause", "pause", key_display="space"),
        Binding("left_square_bracket", "step(False)", "knob", key_display="[ ]"),
        Binding("right_square_bracket", "step(True)", "knob", show=False),
        Binding("tab", "next_knob(1)", "next knob", show=False),
        Binding("shift+tab", "next_knob(-1)", "previous knob", show=False),
        Binding("c", "pin", "pin"),
        Binding("o", "app.explore", "explore"),
        Binding("t", "app.tune", "tune"),
        Binding("e", "app.export", "export"),
        Binding("m", "maximise", "maximise", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "app.quit", "quit"),
        Binding("d", "app.documents", "documents", show=False),
        Binding("p", "app.run(True)", "run, plain anew", show=False),
        Binding("s", "sort", "sort runs", show=False),
        Binding("escape", "overview", "back", show=False),
        *(Binding(str(n), f"panel('{n}')", "panel", show=False) for n in range(1, 9)),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._knobs = tui_knobs(self.tuner.look.gamma, {**OFFERS, "draft": self._draft_ways})
        self._chosen = next(knob for knob in self._knobs if knob.name == FIRST_KNOB)
        self._viewer = Viewer(self.tuner.controller.tuning, self.tuner.demo)
        self._paused = False
        self._dirty = True
        self.view: View | None = None

    @property
    def tuner(self) -> Host:
        return cast(Host, self.app)

    def compose(self) -> ComposeResult:
        tuner = self.tuner
        yield StatusLines(tuner.look, tuner.controller.settings.model)
        with Container(id="body"):
            yield AcceptancePanel()
            yield PhasesPanel()
            yield PositionsPanel()
            yield SpeedupPanel()
            yield TextPanel()
            yield CurvePanel()
            yield RunsPanel(tuner.look.gamma)
            yield LogPanel()
        yield KnobsPanel(self._knobs)
        yield KeyLine(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._classify(self.size.width, self.size.height)
        self.home.focus()
        self.refresh_knobs()
        self.refresh_view()
        self.set_interval(INTERVAL, self._tick)

    def on_resize(self, event: events.Resize) -> None:
        self._classify(event.size.width, event.size.height)
        self.refresh_knobs()

    def _classify(self, width: int, height: int) -> None:
        chosen = self.size_class = size_class(width, height)
        for name in SIZE_CLASSES:
            self.set_class(name == chosen, name)
        status = self.query_one(StatusLines)
        status.tiny = chosen == "-tiny"
        self.set_class(height < SHORT, "-short")
        self.call_after_refresh(self.redraw)

    # What the engine tells

    def heard(self, urgent: bool) -> None:
        """Something changed; `urgent` for what a person waits for."""
        self._dirty = True
        if urgent:
            self.refresh_view()

    def _tick(self) -> None:
        if self._dirty or self.tuner.controller.busy:
            self.refresh_view()

    def refresh_view(self) -> None:
        if self._paused and self.view is not None:
            return
        self._dirty = False
        self.view = self._viewer.take(self.tuner.controller.shown)
        self.redraw()

    def redraw(self) -> None:
        if self.view is not None:
            self.query_one(StatusLines).show(self.view)
            for panel in self.panels:
                panel.show(self.view)

    # Knobs

    def refresh_knobs(self) -> None:
        """The fields, the preview and the curve, after a knob or the acceptance has changed."""
        controller = self.tuner.controller
        settings, ready = controller.settings, controller.forecaster.ready
        if not self._chosen.applies(settings):
            self._chosen = next(knob for knob in self._knobs if knob.name == FIRST_KNOB)
        forecast = controller.forecast()
        panel = self.query_one(KnobsPanel)
        room = ready.memory_bytes if ready is not None else None
        preview = preview_lines(
            forecast, controller.no_forecast(), controller.needed_memory(), room,
            max(self.size.width - 4, 1), self.tuner.look,
        )  # fmt: skip
        panel.show_settings(settings, self._chosen, preview)
        exploring = controller.exploring
        values: tuple[float, ...] = ()
        if exploring is not None and exploring.knob.name == self._chosen.name:
            values = exploring.values
        unpriced = controller.forecaster.unpriced(settings)
        curve = Curve(self._chosen, settings, controller.forecast, values, unpriced)
        self.query_one(CurvePanel).draw(curve)

    def _draft_ways(self) -> Sequence[str]:
        ready = self.tuner.controller.forecaster.ready
        return draft_ways(ready.shape.layers if ready is not None else None)

    @property
    def chosen(self) -> TuiKnob:
        """The knob that [ and ] change."""
        return self._chosen

    def begin_exploring(self) -> None:
        """Shows the curve that a sweep fills."""
        panel = self.query_one(CurvePanel)
        if not self.in_overview(panel):
            self.stage(panel)
        self.refresh_knobs()
        self.refresh_view()

    def action_step(self, up: bool) -> None:
        self._set(lambda settings: self._chosen.step(settings, up))

    def on_knob_field_stepped(self, message: KnobField.Stepped) -> None:
        self._set(lambda settings: message.knob.step(settings, message.up))

    def on_knob_field_typed(self, message: KnobField.Typed) -> None:
        self._set(lambda settings: message.knob.set(settings, message.text))

    def on_knob_field_opened(self, message: KnobField.Opened) -> None:
        self.tuner.offer(message.knob, self._set)

    def on_knob_field_reached(self, message: KnobField.Reached) -> None:
        self._chosen = message.knob
        self.refresh_knobs()

    def _set(self, change: Change) -> None:
        controller = self.tuner.controller
        try:
            controller.choose(change(controller.settings))
        except ConfigError as error:
            self.tuner.tell("not possible", str(error))
        self.refresh_knobs()

    def action_next_knob(self, by: int) -> None:
        fields = [field for field in self.query_one(KnobsPanel).fields if field.display]
        at = next(i for i, field in enumerate(fields) if field.knob.name == self._chosen.name)
        if isinstance(self.focused, KnobField):
            at = (at + by) % len(fields)
        self.remove_class("-max")
        fields[at].focus()

    @property
    def home(self) -> KnobField:
        return self.query_one(f"#knob-{self._chosen.name}", KnobField)

    # Views

    def action_pause(self) -> None:
        self._paused = not self._paused
        if self._paused:
            self.view = self._viewer.take(self.tuner.controller.shown, paused=True)
            self.redraw()
        else:
            self.refresh_view()

    def action_pin(self) -> None:
        self.tuner.controller.pin()
        self.refresh_view()

    def action_sort(self) -> None:
        self.query_one(RunsPanel).sort()

    def on_runs_panel_chosen(self, message: RunsPanel.Chosen) -> None:
        self.tuner.controller.shown = message.run
        self.refresh_view()

    def action_help(self) -> None:
        panel = self.focused_panel()
        self.tuner.help_on(panel, self.panels)
