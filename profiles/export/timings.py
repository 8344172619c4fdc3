"""Step times of the engine a profile is exported to, as its user measured them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magicdec.engine.config import MAX_GAMMA
from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import clean, last_part, read_bounded
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.files.files import csv_rows
from magicdec.profiles.files.json_fields import Fields
from magicdec.profiles.files.toml import parse_toml
from magicdec.profiles.recorded.reader import decode, parse_json

MAX_BYTES = 4 * 2**20
COLUMNS = ("batch", "context", "gamma", "plain_ms", "draft_ms", "verify_ms")


@dataclass(frozen=True, slots=True)
class Timing:
    """At one batch, context (None: any) and γ; passes are all that is known of a step."""

    batch: int
    context: int | None
    gamma: int
    times: StepTimes[float]


def read_timings(path: str | Path) -> tuple[Timing, ...]:
    """Reads COLUMNS from a CSV file, a JSON list of objects, or TOML's [[timings]].

    `context` may be left out. Raises ConfigError.
    """
    name = clean(last_part(str(path)))
    text = decode(read_bounded(path, MAX_BYTES), name, "file of timings")
    kind = Path(path).suffix.lower()
    value: Any
    if kind == ".toml":
        value = parse_toml(name, text)
    elif kind == ".json":
        value = parse_json(text, name)
    elif kind == ".csv":
        value = _csv(text, name)
    else:
        raise ConfigError(f"{name} ends in neither .csv, .json nor .toml; rename it")
    if isinstance(value, list):
        value = {"timings": value}
    found = tuple(_timing(part) for part in Fields(value, name).objects("timings"))
    if not found:
        raise ConfigError(f"{name} has no timings; give rows of {', '.join(COLUMNS)}")
    places = [(timing.batch, timing.context, timing.gamma) for timing in found]
    if len(set(places)) < len(places):
        raise ConfigError(f"{name} gives two timings for the same batch, context and gamma")
    return found


def _timing(fields: Fields) -> Timing:
    plain, draft, verify = (
        fields.number(name, low=1e-6, high=1e9) / 1e3
        for name in ("plain_ms", "draft_ms", "verify_ms")
    )
    return Timing(
        fields.integer("batch", 1, 100_000),
        fields.maybe("context", lambda name: fields.integer(name, 1, 100_000_000)),
        fields.integer("gamma", 1, MAX_GAMMA),
        StepTimes(plain, draft, verify, 0.0, 0.0),
    )


def _csv(text: str, name: str) -> list[dict[str, object]]:
    given, lines = csv_rows(text, name)
    lacking = [column for column in COLUMNS if column not in (*given, "context")]
    if lacking:
        which = (
            f"column {lacking[0]} is" if len(lacking) == 1 else f"columns {', '.join(lacking)} are"
        )
        raise ConfigError(f"{name}: {which} missing; the first line names {', '.join(COLUMNS)}")
    return [{k: _number(v) for k, v in cells.items() if k in COLUMNS} for _, cells in lines]


def _number(text: str) -> int | float | str | None:
    """Numbers of a table cell; what is none stays text, for the message."""
    text = text.strip()
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
