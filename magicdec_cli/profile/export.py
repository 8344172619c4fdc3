"""`magicdec profile export`: what the engine reads on stdout, what it is worth on stderr."""

from __future__ import annotations

import io
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.files import but_stdout, check_output, written
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.untrusted import clean, read_bounded
from magicdec.profiles.export.plan import Wanted, make_plan
from magicdec.profiles.export.registry import export, format_named, header_notes
from magicdec.profiles.export.settings import EngineOptions, Export
from magicdec.profiles.recorded.flat import flat_table
from magicdec.profiles.recorded.reader import decode, read_profile

TABLES = ("csv", "md")
#: Options on the engine that a format has no place for; of others --schedule-keys alone.
IDLE = {
    "tensorrt-llm": (),
    "vllm-sparse": ("--draft-model", "--schedule-keys"),
    "aiconfigurator": ("--draft-model", "--schedule-keys"),  # it always replays
    "magicdec": ("--draft-model", "--replay", "--schedule-keys"),
}


def run_export(
    path: str, format: str, wanted: Wanted, options: EngineOptions, output: Path | None
) -> None:
    output, beside = but_stdout(output), None
    if output is not None:
        inputs = [path, *([wanted.target_timings] if wanted.target_timings else [])]
        check_output(output, inputs=inputs)
    if output is not None and (output.is_file() or not output.exists()):
        beside = output.with_name(output.name + ".notes.md")
        check_output(beside, f"--output {output}: the notes' file", inputs=inputs)
    require(
        wanted.gamma is None or wanted.gamma > 0,
        f"--gamma {wanted.gamma} would not speculate: leave the engine's speculation off, or give "
        "1 or more",
    )
    profile = read_profile(path)
    for warning in profile.warnings:
        TERMINAL.note(f"warning: {warning}")
    if format in TABLES:
        from magicdec.cli.output.tables import print_listing

        if not profile.cells:
            raise ConfigError("the profile has no cells yet")
        out = io.StringIO()
        kind: Literal["csv", "md"] = "csv" if format == "csv" else "md"
        print_listing(*flat_table(profile.cells, sparse=kind == "csv"), kind, out)
        made = Export(out.getvalue(), tuple(header_notes(profile.header)))
    else:
        made = export(make_plan(profile, wanted), format, options)
    if output is None or beside is None:  # a pipe or a device has no file beside it
        with nullcontext(sys.stdout) if output is None else written(output) as stream:
            stream.write(made.text)
        for note in made.notes:
            TERMINAL.note(note)
        return
    lines = [
        f"# {output.name}, exported for {format}",
        "",
        *(f"- {_escaped(note)}" for note in made.notes),
    ]
    with written(output) as file, written(beside) as notes:
        file.write(made.text)
        file.flush()  # a full disk is noticed before either is replaced
        notes.write("\n".join(lines) + "\n")
    TERMINAL.note(f"wrote {output} and {beside}")


def run_check(path: str, format: str) -> None:
    """Raises ConfigError that says what the engine would refuse."""
    if format in TABLES:
        raise ConfigError(f"--check knows engine formats, not {format}")
    text = decode(read_bounded(path, 2**20), path, f"configuration of {format}")
    try:
        remarks = format_named(format).check(text)
    except ConfigError as error:
        raise ConfigError(f"{clean(path)}: {error}") from None
    TERMINAL.note(f"{path}: valid for {format}")
    for remark in remarks:
        TERMINAL.note(f"but {remark}")


def _escaped(note: str) -> str:
    """Names come from the profile: they must not become markup."""
    return re.sub(r"([<>\[\]`])", r"\\\1", note)
