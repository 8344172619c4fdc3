"""Writes a tuning: the page, Markdown or JSON to stdout; its real runs to a profile."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from magicdec.cli.output.columns import text_rows
from magicdec.cli.output.console import TERMINAL, Symbols, one_line
from magicdec.cli.output.files import check_output
from magicdec.cli.output.tables import print_json, print_listing
from magicdec.cli.tune.page import command, export_hint, headline, nothing, print_page
from magicdec.cli.tune.session import TuneOutcome
from magicdec.cli.tune.table import columns, ranking_rows, unpredicted
from magicdec.engine.errors import MagicdecError
from magicdec.engine.untrusted import last_part, model_name
from magicdec.profiles.files.files import replacing
from magicdec.profiles.recorded.conditions import conditions_of
from magicdec.profiles.recorded.header import Grid, Header, Scalar, Source
from magicdec.profiles.recorded.schema import Cell, Profile
from magicdec.profiles.recorded.writer import ProfileWriter
from magicdec.profiles.tuning.record import tune_record


def deliver(outcome: TuneOutcome, format: str, output: Path | None) -> None:
    if format == "table":
        print_page(TERMINAL.out, outcome, output)
        return
    for note in outcome.notes:
        TERMINAL.note(f"note: {note}")
    if format == "md":
        _markdown(outcome, output)
        return
    found = outcome.recommendations
    print_json(
        tune_record(
            outcome.answers, outcome.question.objective, env=outcome.env,
            config=dataclasses.asdict(outcome.settings),
            calibrated=outcome.calibration.created if outcome.calibration else None,
            commands=[None if one is None else command(outcome, one) for one in found],
            notes=outcome.notes, interrupted=outcome.interrupted,
            error=None if outcome.error is None else one_line(outcome.error),
        )
    )  # fmt: skip


def write_profile(outcome: TuneOutcome, path: Path) -> None:
    """The cells that ran; says so when there are none. Raises MagicdecError, with no file left."""
    profile = tuned_profile(outcome)
    if profile is None:
        TERMINAL.note(f"no draft was run to the end: {path} is not written")
        return
    check_output(path, new=True)  # minutes have passed
    try:
        with replacing(path) as made, ProfileWriter(made, profile.header) as file:
            for cell in profile.cells:
                file.append(cell)
    except OSError as error:
        raise MagicdecError(
            f"--output {path} cannot be written: {error.strerror}; the answer above is all there is"
        ) from error


def tuned_profile(outcome: TuneOutcome) -> Profile | None:
    """The real runs; None where none has come to its end."""
    cells = [_told_apart(cell, outcome) for answer in outcome.answers for cell in answer.cells()]
    env = {
        name: value for name, value in outcome.env.items()
        if value is None or isinstance(value, str | int | float | bool)
    }  # fmt: skip
    if not cells:
        return None
    env["model"] = model_name(str(env["model"]))  # no folders of the user's
    return Profile(_header(outcome, env), tuple(cells))


def _told_apart(cell: Cell, outcome: TuneOutcome) -> Cell:
    """Its schedule, if it has one, by what the file says."""
    policy = outcome.policies.get(cell.key.gamma_policy, cell.key.gamma_policy)
    key = dataclasses.replace(cell.key, gamma_policy=policy)
    return dataclasses.replace(cell, key=key)


def _header(outcome: TuneOutcome, env: dict[str, Scalar]) -> Header:
    keys = [cell.key for answer in outcome.answers for cell in answer.cells()]
    return Header(
        created=datetime.now(UTC).isoformat(timespec="seconds"), tool=version("magicdec"),
        environment=env, model=str(env["model"]), dtype=str(outcome.env["dtype"]),
        kv_dtype=str(outcome.env["kv_dtype"]),
        documents=tuple(
            Source(last_part(name), None, digest) for name, digest in outcome.documents.items()
        ),
        max_new_tokens=outcome.question.config.max_new_tokens,
        conditions=conditions_of(
            dataclasses.asdict(outcome.settings), outcome.question.config.tree_rates
        ),
        grid=Grid(**{
            field.name: tuple(dict.fromkeys(
                value for key in keys if (value := getattr(key, field.name)) is not None
            ))
            for field in dataclasses.fields(Grid)
        }),
    )  # fmt: skip


def _markdown(outcome: TuneOutcome, output: Path | None) -> None:
    look = Symbols()
    shown = columns(outcome.question.objective)
    for answer, found in zip(outcome.answers, outcome.recommendations, strict=True):
        if found is None:
            print(f"**context {answer.context:,}**: {nothing(answer)}\n")
            continue
        print(f"**{found.place.label}. {headline(found)}**\n")
        print(f"```console\n{command(outcome, found)}\n```\n")
        rows = ranking_rows(answer, found, outcome.question.objective)
        print_listing([column.title for column in shown], text_rows(rows, shown, look), "md")
        print()
        if line := unpredicted(rows):
            print(f"{line}\n")
        print(" ".join(found.reasons) + "\n")
    hint = export_hint(outcome, output)
    if hint:
        print(f"{hint[0]}\n\n```console\n{hint[1]}\n```")
