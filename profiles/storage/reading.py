"""Opens a profile file that anybody may have written, or that a killed run left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from magicdec.engine.bounded import read_bounded
from magicdec.engine.errors import ConfigError
from magicdec.engine.harmless import clean, last_part, plain_words, shown
from magicdec.profiles.records import RUN_SCHEMA
from magicdec.profiles.storage.decoding import cell_from_json, header_from_json
from magicdec.profiles.storage.from_run import profile_of_run
from magicdec.profiles.storage.schema import OLDER, SCHEMA, Cell, CellKey, Profile

MAX_BYTES = 64 * 2**20
MAX_LINE = 4 * 2**20
MAX_CELLS = 100_000
WRITERS = "`magicdec profile record`, `tune -o` and `run --compare --json` write what is read here"
MAX_RUN = 16 * 2**20  # a run's document


def read_profile(path: str | Path) -> Profile:
    """A recorded profile, or a `magicdec run --compare --json` document as a profile of one cell.

    A torn last line is dropped with a warning; a cell that was measured again counts once, as
    measured last. Raises ConfigError in one line for everything that is not a profile.
    """
    name = clean(last_part(str(path)))
    text = decode(read_bounded(path, MAX_BYTES), name)
    if text.count("\n") > 2 * MAX_CELLS:
        raise ConfigError(f"{name} has more than {2 * MAX_CELLS:,} lines; no profile has")
    lines = text.split("\n")
    if (run := _run_document(lines[0], text, name)) is not None:
        return replace(run, warnings=tuple(disturbances(run.cells)))
    header = header_from_json(_schema_checked(lines[0], name), f"{name}, line 1")
    cells, warnings = _read_cells(lines, name)
    return Profile(header, tuple(cells), (*warnings, *disturbances(cells)))


def disturbances(cells: Iterable[Cell]) -> list[str]:
    """A line about those that were measured while the machine had other work, if there are any."""
    found = [cell for cell in cells if cell.disturbed]
    if not found:
        return []
    first = next(steady.signs for steady in found[0].watched if steady.disturbed)
    more = f"; so are {len(found) - 1:,} more" if len(found) > 1 else ""
    return [
        f"{found[0].key.label} is a disturbed measurement: {first}{more}; do not trust their times "
        "and speedups, measure again when the machine is idle"
    ]


def decode(data: bytes, name: str, what: str = "recorded profile") -> str:
    """what: it should be. Raises ConfigError."""
    if not data.strip():
        raise ConfigError(f"{name} is empty; give a {what}")
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        # A run that was killed inside a character leaves a torn last line, which may go.
        torn = data.rfind(b"\n") < error.start and b"\n" in data
        if torn:
            return data.decode(errors="replace")
        raise ConfigError(f"{name} is not UTF-8 (byte {error.start}); give a {what}") from None


def _read_cells(lines: list[str], name: str) -> tuple[list[Cell], list[str]]:
    cells: dict[CellKey, Cell] = {}
    warnings = []
    numbered = [(n, line) for n, line in enumerate(lines, start=1) if n > 1 and line.strip()]
    if len(numbered) > MAX_CELLS:
        raise ConfigError(f"{name} has {len(numbered):,} cells, more than {MAX_CELLS:,}")
    for number, line in numbered:
        where = f"{name}, line {number}"
        try:
            value = _parse(line, where)
        except ConfigError as error:
            if number == numbered[-1][0]:  # the write did not complete
                warnings.append(f"{error}; the last line was torn and is left out")
                break
            raise ConfigError(f"{error}; delete that line") from None
        try:
            cell = cell_from_json(value, where)
        except ConfigError as error:
            raise ConfigError(f"{error}; delete that line") from None
        before = cells.pop(cell.key, None)
        grown = before is not None and cell.repeats[: len(before.repeats)] == before.repeats
        if before is not None and before.status == "ok" and not grown:
            warnings.append(f"{where}: {cell.key.label} was measured before; the later one counts")
        cells[cell.key] = cell
    return list(cells.values()), warnings


def _run_document(first: str, text: str, name: str) -> Profile | None:
    """`run --json` is one document over many lines: its first is just a brace."""
    if RUN_SCHEMA not in text[:4096]:
        return None
    whole = text if first.strip() == "{" else first
    if len(whole) > MAX_RUN:
        raise ConfigError(f"{name} is larger than {MAX_RUN / 2**20:.0f} MiB; no run's document is")
    document = parse_json(whole, name)
    if not isinstance(document, dict) or document.get("schema") != RUN_SCHEMA:
        return None
    return profile_of_run(document, name)


def _schema_checked(line: str, name: str) -> object:
    """The first line, as data."""
    try:
        value = _parse(line, f"{name}, line 1")
    except ConfigError as error:
        raise ConfigError(f"{error}; {WRITERS}") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema in (SCHEMA, *OLDER):
        return value
    found = (
        re.fullmatch(r"magicdec\.profile/(\d{1,9})", schema) if isinstance(schema, str) else None
    )
    if found is None:
        has = "it has no schema" if schema is None else f"its schema is {shown(schema)}"
        raise ConfigError(
            f"{name} is no magicdec profile: {has}, a profile's is {SCHEMA}; {WRITERS}"
        )
    newer = int(found[1]) > int(SCHEMA.rpartition("/")[2])
    advice = "upgrade magicdec" if newer else "record it again"
    raise ConfigError(f"{name} is a {schema}, this magicdec reads {SCHEMA}; {advice}")


def _parse(line: str, where: str) -> Any:
    if len(line) > MAX_LINE:
        raise ConfigError(f"{where} is longer than {MAX_LINE / 2**20:.0f} MiB, no cell is")
    return parse_json(line, where)


def parse_json(text: str, where: str) -> Any:
    """JSON proper: no NaN, no infinity. Raises ConfigError that names `where`."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply") from None
    except ValueError as error:  # malformed, a constant, or an integer of thousands of digits
        reason = error.msg if isinstance(error, json.JSONDecodeError) else plain_words(error)
        raise ConfigError(f"{where} is damaged: {clean(reason)}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
