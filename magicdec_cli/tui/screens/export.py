"""Export: all runs as a profile or a table, or a picture of the screen."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input, OptionList, Static

from magicdec.cli.output.tables import print_listing
from magicdec.cli.tui.screens.dialogs import Dialog
from magicdec.cli.tui.session_log import recorded_run, session_profiles
from magicdec.cli.tui.state import Tuning
from magicdec.engine.errors import ConfigError
from magicdec.profiles.recorded.flat import flat
from magicdec.profiles.recorded.schema import Profile
from magicdec.profiles.recorded.writer import ProfileWriter

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
    """Writes the file and says what is in it: a profile for each set of documents and number of new
    tokens, a table with them in each row. Raises ConfigError, OSError."""
    target = Path(path)
    if target.suffix == ".svg":
        target.write_text(picture(), encoding="utf-8")
        return f"the screen is in {target}"
    profiles = session_profiles(tuning)
    if not profiles:
        raise ConfigError("there is no run yet that has drafted anything; r starts one")
    files = [target]
    if target.suffix == ".csv":
        rows = [
            {
                "model": profile.header.model, "documents": _names(profile),
                "max_new_tokens": profile.header.max_new_tokens, **flat(cell),
            }
            for profile in profiles
            for cell in profile.cells
        ]  # fmt: skip
        text = io.StringIO()
        print_listing(list(rows[0]), [list(row.values()) for row in rows], "csv", text)
        target.write_text(text.getvalue(), encoding="utf-8")
    else:
        files = _files(target, profiles)
        for file, profile in zip(files, profiles, strict=True):
            with ProfileWriter(file, profile.header) as writer:
                for cell in profile.cells:
                    writer.append(cell)
    tuned = tuning.tuned_settings
    count = sum(bool(recorded_run(run, tuning)) for run in tuning.runs.values() if run.over)
    said = [f"{count} run{'s' * (count != 1)}"] if count or not tuned else []
    if tuned:
        said.append(f"{tuned} setting{'s' * (tuned != 1)} of the tuner")
    return f"{' and '.join(said)} in {', '.join(map(str, files))}"


def _files(target: Path, profiles: Sequence[Profile]) -> list[Path]:
    """One for each profile, named by its documents where there are several. Raises ConfigError for
    one that is there already."""
    if len(profiles) == 1:
        return [target]
    found: list[Path] = []
    for number, profile in enumerate(profiles, start=1):
        about = re.sub(r"[^\w.]+", "-", _names(profile)).strip("-.")[:60]
        path = target.with_stem(f"{target.stem}-{number}-{about}")
        if path.exists():
            raise ConfigError(f"{path} exists; give another name")
        found.append(path)
    return found


def _names(profile: Profile) -> str:
    return ", ".join(source.name for source in profile.header.documents)
