"""The app: ties the controller, which talks to the engine, to the screens."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.driver import Driver
from textual.message import Message
from textual.screen import Screen

from magicdec.cli import interrupts
from magicdec.cli.output.console import ASCII, Symbols, plain_text
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.controller import Controller, Log, Notice
from magicdec.cli.tui.knobs import Change, TuiKnob
from magicdec.cli.tui.panels.base import Framed
from magicdec.cli.tui.process.link import Link
from magicdec.cli.tui.process.messages import Happened, Loading, Report, TuneStep
from magicdec.cli.tui.questions import Asking
from magicdec.cli.tui.screens.dialogs import ChoiceDialog, MessageDialog
from magicdec.cli.tui.screens.export import ExportDialog, export_to
from magicdec.cli.tui.screens.help import keys_help, panel_help
from magicdec.cli.tui.screens.main import MainScreen
from magicdec.engine.errors import MagicdecError

FAREWELL_SECONDS = 3.0  # a terminal that takes nothing holds the app no longer than that


class TuningApp(Asking):
    TITLE = "magicdec"
    CSS = """
    ToastRack { dock: top; align: right top; margin: 1 0 0 0; }  /* the knobs stay in sight */
    Screen:ansi Framed { border: round ansi_bright_black;
        &:focus, &:focus-within { border: round ansi_blue; } }
    .-ascii Framed { border: ascii $foreground 30%;
        &:focus, &:focus-within { border: ascii $accent; } }
    .-ascii Screen:ansi Framed { border: ascii ansi_bright_black;
        &:focus, &:focus-within { border: ascii ansi_blue; } }
    .-ascii Toast { border-left: ascii $accent; border-right: none; }
    .-ascii RunsPanel > DataTable, .-ascii VerticalScroll { scrollbar-size: 0 0; }
    .-ascii OptionList { scrollbar-size: 0 0; }
    .-ascii Dialog > Vertical { border: ascii $accent; }
    .-ascii CommandPalette > Vertical > * { border: none; }
    .-ascii SearchIcon { display: none; }
    .-ascii CommandList { border: none; scrollbar-size: 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "quit", show=False, priority=True)
    ]

    class Reports(Message):
        """The engine has said something; it waits in the inbox."""

    def __init__(
        self, link: Link, sources: Sequence[str], settings: Settings, *, log: Log | None = None,
        ascii: bool = False, demo: bool = False, now: Callable[[], float] = time.monotonic,
        driver: type[Driver] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(driver_class=driver)
        self.look = ASCII if ascii else Symbols()
        self.ascii, self.demo = ascii, demo
        started = now()
        self.controller = Controller(link, sources, settings, lambda: now() - started, log)
        self._inbox: deque[Report] = deque()
        self._main: MainScreen | None = None
        self._made = self._told_to_leave = False

    def get_default_screen(self) -> Screen[object]:
        self._main = MainScreen()
        return self._main  # type: ignore[return-value]

    @property
    def main(self) -> MainScreen:
        assert self._main is not None
        return self._main

    def on_load(self) -> None:
        """A signal must not interrupt the event loop: it leaves the app like a key."""
        loop = asyncio.get_running_loop()

        def told() -> None:
            interrupts.end_within(FAREWELL_SECONDS)
            loop.call_soon_threadsafe(self._leave)

        interrupts.tell(told)

    def _leave(self) -> None:
        """At once, or as soon as the screens are made: until then they do not bear it."""
        self._told_to_leave = True
        if self._made:
            self.exit(return_code=interrupts.INTERRUPTED)

    def on_mount(self) -> None:
        self.set_class(self.ascii, "-ascii")

    def action_command_palette(self) -> None:
        """Textual's own, with a prompt that every terminal can show."""
        self.push_screen(CommandPalette(placeholder="Search for commands"))

    def on_ready(self) -> None:
        self._made = True
        if self._told_to_leave:
            self._leave()
            return
        self.controller.start(self._heard)

    def _heard(self, report: Report) -> None:
        """In the link's thread. Reports that come faster than they are handled share a message."""
        waiting = bool(self._inbox)
        self._inbox.append(report)
        if not waiting:
            self.post_message(self.Reports())

    def on_tuning_app_reports(self) -> None:
        urgent = False
        while self._inbox:
            report = self._inbox.popleft()
            notice = self.controller.receive(report)
            urgent |= not isinstance(report, Happened | Loading | TuneStep)
            if notice is not None:
                self.give(notice)
        if urgent:
            self.main.refresh_knobs()  # acceptance or the machine may be known now
        self.main.heard(urgent)

    def give(self, notice: Notice) -> None:
        if notice.kind != "note":
            text = plain_text(notice.text, self.look)
            self.push_screen(MessageDialog(notice.title, text, error=notice.kind == "error"))
        else:
            self.tell(notice.title, notice.text)

    def tell(self, title: str, text: str) -> None:
        self.notify(text, title=title, timeout=4, markup=False)

    # Actions

    def action_run(self, again: bool = False) -> None:
        asked = self.controller.settings
        notice = self.controller.run(again=again)
        if notice is None and self.controller.settings != asked:  # a link that has its own
            notice = Notice("demo", "a recorded run plays, with its own settings")
        if notice is not None:
            self.give(notice)
        self.main.refresh_knobs()
        self.main.heard(True)

    def action_stop(self) -> None:
        self.controller.stop()
        self.main.heard(True)

    def offer(self, knob: TuiKnob, put: Callable[[Change], None]) -> None:
        """A list of the knob's values."""
        dialog = ChoiceDialog(
            knob.label, knob.choices, str(getattr(self.controller.settings, knob.name)),
            other=knob.other, about=knob.knob.help,
        )  # fmt: skip

        def chosen(text: str | None) -> None:
            if text is not None:
                put(lambda settings: knob.set(settings, text))

        self.push_screen(dialog, chosen)

    def action_export(self) -> None:
        def export(path: str | None) -> None:
            if path is not None:
                self.call_after_refresh(self._export, path)

        tuning = self.controller.tuning
        self.push_screen(ExportDialog(bool(tuning.runs or tuning.tuned_settings)), export)

    def _export(self, path: str) -> None:
        try:
            said = export_to(path, self.controller.tuning, self.export_screenshot)
        except (MagicdecError, OSError) as error:
            self.give(Notice("export", str(error), "error"))
            return
        self.tell("export", said)

    def help_on(self, panel: Framed | None, panels: Sequence[Framed]) -> None:
        """The panel's own help, or the keys when none has the focus or the knobs have it."""
        if panel is None:
            self.push_screen(MessageDialog("keys", keys_help(panels)))
        else:
            self.push_screen(
                MessageDialog(f"{panel.key} {panel.title}".strip(), panel_help(panel, self.look))
            )

    def action_keys(self) -> None:
        self.help_on(None, self.main.panels)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield SystemCommand("Run", "Run the settings of the knobs", self.action_run)
        yield SystemCommand("Stop", "Stop the run within one step", self.action_stop)
        yield SystemCommand(
            "Run, plain anew", "Measure plain decoding again first", lambda: self.action_run(True)
        )
        yield SystemCommand("Explore", "Run one knob's values", self.action_explore)
        yield SystemCommand("Tune", "Find the best settings and set the knobs", self.action_tune)
        yield SystemCommand("Documents", "Open other documents", self.action_documents)
        yield SystemCommand("Export", "Runs or a picture to a file", self.action_export)
        yield SystemCommand("Keys", "What every key does", self.action_keys)
        yield SystemCommand("Theme", "Dark, light, or the terminal's own", self.action_change_theme)
        yield SystemCommand("Quit", "End the engine and leave", self.action_quit)
