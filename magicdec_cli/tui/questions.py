"""The actions that ask for a line of text first: explore, tune, other documents."""

from __future__ import annotations

from abc import abstractmethod

from textual.app import App

from magicdec.cli.output.console import Symbols, plain_text
from magicdec.cli.tui.controller import Controller, Notice
from magicdec.cli.tui.knobs import TuiKnob, around
from magicdec.cli.tui.screens.dialogs import LineDialog
from magicdec.cli.tui.screens.main import MainScreen
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.selection import SELECTORS
from magicdec.profiles.files.sweep import sweep

MOST_RUNS = 50  # of one sweep
TUNE_SELECTORS = ("snapkv", "streaming")
TUNE_ABOUT = (
    "Finds budget, γ and draft weights for batch {batch}, context {context}: surveys what would be "
    "accepted of these documents, prices every setting by this machine's calibration (made first "
    "if there is none: about 2 minutes), proves the best 3 with real runs beside plain decoding, "
    "and puts the answer into the knobs. x stops it.\n"
    "Selectors to try:"
)


class Asking(App[None]):
    controller: Controller
    look: Symbols

    @property
    @abstractmethod
    def main(self) -> MainScreen:
        """The screen with the panels."""

    @abstractmethod
    def give(self, notice: Notice) -> None:
        """Shows it."""

    @abstractmethod
    def tell(self, title: str, text: str) -> None:
        """A note that goes away by itself."""

    @abstractmethod
    def action_run(self, again: bool = False) -> None:
        """Runs the settings."""

    def action_explore(self) -> None:
        knob = self.main.chosen
        values = around(knob, self.controller.settings) if knob.numeric else []
        if not values:
            self.tell("explore", "choose a knob that has a number, with tab")
            return
        whole = knob.knob.kind == "int"
        text = ",".join(f"{v:.0f}" if whole else f"{v:g}" for v in values)
        about = (
            f"Runs the settings once for each value of {knob.label}; the curve (6) shows the "
            "prediction and every measured point. x stops the sweep.\n"
            + (
                "Write 8, a list 1,4,8 or a range 1-6, 1024-8192*2."
                if whole
                else "A list: 0,0.5,1."
            )
        )

        def begin(text: str | None) -> None:
            if text is not None:
                notice = self.controller.explore(knob, self._values(knob, text))
                self.main.begin_exploring()
                if notice is not None:
                    self.give(notice)

        check = lambda text: self._values(knob, text)  # noqa: E731
        self.push_screen(LineDialog(f"explore {knob.label}", about, text, check), begin)

    def _values(self, knob: TuiKnob, text: str) -> list[float]:
        low, high = knob.knob.low or 0, knob.knob.high or 0
        if knob.knob.kind == "int":
            low = max(low, 1)
            found = sweep(text, knob.label, low=int(low), high=int(high), most=MOST_RUNS)
            values = [float(v) for v in found]
        else:
            values = [float(knob.knob.parse(part.strip(), knob.label)) for part in text.split(",")]
        for value in values:
            knob.put(self.controller.settings, int(value) if knob.knob.kind == "int" else value)
        return values

    def action_tune(self) -> None:
        controller = self.controller
        if controller.busy:
            self.tell("tune", f"{controller.busy}; x stops it")
            return
        settings = controller.settings
        context = "the whole documents" if settings.context is None else f"{settings.context:,}"
        about = TUNE_ABOUT.format(batch=settings.batch, context=context)
        about = plain_text(about, self.look)
        tried = dict.fromkeys((*TUNE_SELECTORS, settings.selector))

        def begin(text: str | None) -> None:
            if text is not None:
                notice = controller.tune(_selectors(text))
                if notice is not None:
                    self.give(notice)
                self.main.heard(True)

        self.push_screen(LineDialog("tune", about, ",".join(tried), _selectors), begin)

    def action_documents(self) -> None:
        def opened(text: str | None) -> None:
            if text is not None:
                if self.controller.tuning.phase == "gone":
                    self.controller.sources = tuple(text.split())
                    self.action_run()
                else:
                    self.controller.open(text.split())
                self.main.heard(True)

        if self.controller.busy:
            self.tell("documents", f"{self.controller.busy}; x stops it")
            return
        about = "Text files, separated by spaces, or builtin:pydoc."
        now = " ".join(self.controller.sources)
        self.push_screen(LineDialog("documents", about, now, _some_names), opened)


def _selectors(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    require(bool(names), "name at least one selector, such as snapkv")
    for name in names:
        SELECTORS.load(name)
    return names


def _some_names(text: str) -> None:
    if not text.split():
        raise ConfigError("give at least one document")
