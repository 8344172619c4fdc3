"""The `magicdec` command. Importing it must stay cheap: no torch, transformers, textual or rich."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from magicdec.cli import listings
from magicdec.cli.calibrate import GROUPS, calibrate
from magicdec.cli.interrupts import INTERRUPTED, came, leave
from magicdec.cli.listings import drafters
from magicdec.cli.output.console import TERMINAL, ClosedOutput, one_line, tolerate_narrow_encodings
from magicdec.cli.output.help import (
    GroupedHelp,
    HelpWithTerms,
    PredictHelp,
    ProfileHelp,
    TuneHelp,
    spelling,
)
from magicdec.cli.predict.command import EPILOG as PREDICT_EPILOG
from magicdec.cli.predict.command import predict
from magicdec.cli.profile import command
from magicdec.cli.profile.record_command import RECORD_EPILOG, RECORD_GRIDS, RECORD_WORDED, record
from magicdec.cli.profile.survey_command import SURVEY_EPILOG, SURVEY_GRIDS, survey
from magicdec.cli.run.command import EPILOG, run
from magicdec.cli.settings.grids import TREES
from magicdec.cli.settings.options import with_common, with_settings
from magicdec.cli.tui_command import tui
from magicdec.cli.tune.command import TUNE_EPILOG, TUNE_GRIDS, tune
from magicdec.engine.errors import ConfigError, MagicdecError
from magicdec.engine.memory.exhaustion import ran_out
from magicdec.engine.untrusted import brief
from magicdec.kernels.cachedir import CacheFolderError

UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF)


class Commands(TyperGroup):
    """Lists commands in the order they were added."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, spelling(formatter))


def _group(help: str) -> typer.Typer:
    return typer.Typer(
        help=help, cls=Commands, rich_markup_mode=None, add_completion=False, no_args_is_help=True
    )


app = _group("Lossless self-speculative decoding for long contexts: measure whether it pays.")
models = _group("Models that have an alias.")
cache = _group("Stored prefills, converted models and compiled kernels on this machine.")
config = _group("Settings and where they come from.")
profile = _group(
    "Measure many settings (record, survey); read measurements (show, compare, export)."
)

app.command("run", cls=HelpWithTerms, epilog=EPILOG)(with_common(with_settings(run)))
app.command("tune", cls=TuneHelp, epilog=TUNE_EPILOG)(
    with_common(with_settings(tune, grids=TUNE_GRIDS, worded=("gamma",)))
)
app.command("tui", cls=GroupedHelp, epilog=EPILOG)(with_common(with_settings(tui), silent=None))
app.command("predict", cls=PredictHelp, epilog=PREDICT_EPILOG)(
    with_common(predict, silent=("output",))
)
app.command("calibrate", cls=GroupedHelp)(with_common(with_settings(calibrate, GROUPS)))
app.command("selectors", cls=GroupedHelp)(with_common(listings.selectors))
app.command("drafters", cls=GroupedHelp)(with_common(drafters))
models.command("list", cls=GroupedHelp)(with_common(listings.models_list))
models.command("pull", cls=GroupedHelp)(with_common(listings.models_pull))
app.add_typer(models, name="models")
cache.command("list", cls=GroupedHelp)(with_common(listings.cache_list))
cache.command("clear", cls=GroupedHelp)(with_common(listings.cache_clear))
app.add_typer(cache, name="cache")
config.command("show", cls=GroupedHelp)(with_common(listings.config_show))
app.add_typer(config, name="config")
profile.command("record", cls=ProfileHelp, epilog=RECORD_EPILOG)(
    with_common(with_settings(record, grids=RECORD_GRIDS, worded=RECORD_WORDED), silent=None)
)
profile.command("survey", cls=ProfileHelp, epilog=SURVEY_EPILOG)(
    with_common(with_settings(survey, grids=SURVEY_GRIDS, refused=TREES))
)
profile.command("show", cls=ProfileHelp)(with_common(command.show))
profile.command("compare", cls=ProfileHelp)(with_common(command.compare))
profile.command("export", cls=ProfileHelp)(with_common(command.export, silent=("output", "check")))
app.add_typer(profile, name="profile")
app.command("terms", cls=GroupedHelp)(with_common(listings.terms))
app.command("doctor", cls=GroupedHelp)(with_common(listings.doctor))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"magicdec {version('magicdec')}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits; the one place where errors become messages and codes."""
    code = run_command_line(arguments)
    leave(code)
    sys.exit(code)


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """0 ok, 1 failed, 2 usage or config, 3 model or device, 4 not lossless, 130 interrupted."""
    if sys.stderr is None:  # closed by the caller
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)
    if sys.stdout is None:
        while os.open(os.devnull, os.O_WRONLY) < 1:
            pass  # its number is taken, too: no file of ours is to get it
        sys.stdout = ClosedOutput()
    tolerate_narrow_encodings()
    TERMINAL.reset()
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except OSError as error:
        # Nobody reads on, or the disk is full; stop Python from trying once more at its exit.
        if not isinstance(sys.stdout, ClosedOutput):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 1
        return _failed(f"cannot write to standard output: {error.strerror}", 1, error)
    except ValueError as error:  # a plug-in has closed it
        if not sys.stdout.closed:
            raise
        return _failed("cannot write to standard output: it was closed", 1, error)


def _run(arguments: Sequence[str] | None) -> int:
    """Raises OSError when a stream like stdout cannot be written: such errors name no file."""
    try:
        code = app(arguments, prog_name="magicdec", standalone_mode=False) or 0
        if code == INTERRUPTED and "interrupted" not in TERMINAL.told:
            raise KeyboardInterrupt  # one that came in typer's own code, which says nothing of it
        return code
    except MagicdecError as error:
        return _failed(one_line(error), error.exit_code, error)
    except CacheFolderError as error:
        return _failed(str(error), ConfigError.exit_code, error)
    except TyperException as error:
        return _failed(_usage(_with_value(error)), error.exit_code, error)
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", INTERRUPTED, None)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            raise
        if came():
            return _failed(f"interrupted ({one_line(error)})", INTERRUPTED, error)
        return _failed(ran_out(error) or f"{one_line(error)}; -v shows where", 1, error)


def _usage(message: str) -> str:
    """A usage error on one line; a help page, which a bare group answers with, as it is."""
    if message.startswith("Usage:"):
        return message
    return " ".join(message.split()).replace(": Value error, ", ": ")


def _with_value(error: TyperException) -> str:
    """The message, with the value where pydantic, which typer asks, refused one without it."""
    message, refused = error.format_message(), getattr(error.__cause__, "errors", None)
    value = brief(refused()[0]["input"]) if callable(refused) else ""
    return message if value in message else f"{message}, got {value}"


def _failed(message: str, code: int, error: BaseException | None) -> int:
    TERMINAL.note(message if message.startswith("Usage:") else f"magicdec: {message}")
    if error is not None and TERMINAL.verbose:
        import traceback

        traceback.print_exception(error)
    return code
