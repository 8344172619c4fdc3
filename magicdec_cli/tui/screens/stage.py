"""Which panels are on the stage: the overview of a size, one of them instead, or one alone."""

from __future__ import annotations

from abc import abstractmethod

from textual.screen import Screen
from textual.widget import Widget

from magicdec.cli.tui.panels.base import Framed
from magicdec.cli.tui.panels.knobs import KnobsPanel
from magicdec.cli.tui.panels.runs import RunsPanel
from magicdec.cli.tui.screens.layout import OVERVIEW, SizeClass


class Staged(Screen[None]):
    """A screen with panels in #body, which its keys bring to the front and maximise."""

    size_class: SizeClass = "-compact"

    @property
    @abstractmethod
    def home(self) -> Widget:
        """What has the focus when no panel has it."""

    @abstractmethod
    def redraw(self) -> None:
        """Draws the panels that are on the stage now."""

    @property
    def panels(self) -> list[Framed]:
        return [widget for widget in self.query("Framed") if isinstance(widget, Framed)]

    def action_panel(self, key: str) -> None:
        panel = next(p for p in self.panels if p.key == key)
        if panel.has_class("-stage"):
            self.action_overview()
            return
        self._unstage()
        if isinstance(panel, KnobsPanel):
            self.home.focus()
            return
        if not self.in_overview(panel):
            self.stage(panel)
        self._focus(panel)

    def in_overview(self, panel: Framed) -> bool:
        return not panel.key or panel.key in OVERVIEW[self.size_class]

    def action_maximise(self) -> None:
        panel = self.focused_panel()
        if panel is None or isinstance(panel, KnobsPanel):
            return
        if self.has_class("-max"):
            self.remove_class("-max")
            if self.in_overview(panel):
                self._unstage()
        else:
            self.stage(panel)
            self.add_class("-max")
            self._focus(panel)

    def action_overview(self) -> None:
        self._unstage()
        panel = self.focused_panel()
        if panel is None or not self.in_overview(panel):
            self.home.focus()

    def stage(self, panel: Framed) -> None:
        self._unstage()
        panel.add_class("-stage")
        self.query_one("#body").add_class("-one")
        self.call_after_refresh(self.redraw)

    def _unstage(self) -> None:
        self.remove_class("-max")
        self.query_one("#body").remove_class("-one")
        for panel in self.panels:
            panel.remove_class("-stage")
        self.call_after_refresh(self.redraw)

    def _focus(self, panel: Framed) -> None:
        target = panel.table if isinstance(panel, RunsPanel) else panel
        self.call_after_refresh(target.focus)

    def focused_panel(self) -> Framed | None:
        """The panel that has the focus, itself or in one of its parts."""
        if self.focused is None:
            return None
        return next((a for a in self.focused.ancestors_with_self if isinstance(a, Framed)), None)
