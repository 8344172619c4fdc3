"""Export: all runs as a profile or a table, or a picture of the screen."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input, OptionList, Static

from magicdec.cli.tui.screens.dialogs import Dialog
from magicdec.cli.tui.session_log import session_profile
from magicdec.cli.tui.state import Tuning
from magicdec.engine.errors import ConfigError
from magicdec.profiles.storage.flat import flat
from magicdec.profiles.storage.writing import ProfileWriter

KINDS = {
    ".jsonl": "all runs, a profile for `magicdec profile`",
    ".csv": "all runs, a table for a spreadsheet",
    ".svg": "the screen as a picture",
}


class ExportDialog(Dialog[str]):
    """The ending of the name says what is written."""

    hint = "enter writes, esc leaves"
    DEFAULT_CSS: ClassVar[str] = ""

    def __init__(self, runs: bool) -> None:
        super().__init__("export")
        self._runs = runs

    def parts(self) -> ComposeResult:
        yield OptionList(*(Text(f"{end:<7} {about}") for end, about in KINDS.items()))
        yield Input(id="path")
        yield Static(classes="problem", markup=False)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.highlighted = 0 if self._runs else len(KINDS) - 1
        options.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        ending = list(KINDS)[event.option_index]
        path = self.query_one("#path", Input)
        named = Path(path.value or time.strftime("magicdec-%Y%m%d-%H%M%S"))
        path.value = str(named.with_suffix(ending) if named.suffix in KINDS else f"{named}{ending}")

    def on_option_list_option_selected(self) -> None:
        self._done()

    def on_input_submitted(self) -> None:
        self._done()

    def _done(self) -> None:
        path = Path(self.query_one("#path", Input).value.strip()).expanduser()
        problem = ""
        if path.suffix not in KINDS:
            problem = f"the name must end in {', '.join(KINDS)}"
        elif path.exists():
            problem = f"{path} exists; give another name"
        if problem:
            self.query_one(".problem", Static).update(problem)
        else:
            self.dismiss(str(path))


def export_to(path: str, tuning: Tuning, picture: Callable[[], str]) -> str:
    """Writes the file and says what is in it. Raises ConfigError, OSError."""
    target = Path(path)
    if target.suffix == ".svg":
        target.write_text(picture(), encoding="utf-8")
        return f"the screen is in {target}"
    profile = session_profile(tuning)
    if profile is None:
        raise ConfigError("there is no run yet that has drafted anything; r starts one")
    if target.suffix == ".csv":
        rows = [flat(cell) for cell in profile.cells]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        target.write_text(text.getvalue(), encoding="utf-8")
    else:
        with ProfileWriter(target, profile.header) as writer_:
            for cell in profile.cells:
                writer_.append(cell)
    tuned = tuning.tuned_settings
    count = len(profile.cells) - tuned
    said = [f"{count} run{'s' * (count != 1)}"] if count or not tuned else []
    if tuned:
        said.append(f"{tuned} setting{'s' * (tuned != 1)} of the tuner")
    return f"{' and '.join(said)} in {target}"
