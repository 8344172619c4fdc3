"""γ by batch and context as a TOML file: what `run --gamma FILE` reads and `export` writes.

    schema = "magicdec.gamma/1"

    [[gamma]]
    batch = 1
    context = 1000
    gamma = 3

An entry holds from its batch and context on, up to the next one. Torch-free.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from magicdec.engine.config import MAX_GAMMA
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import Entry, Schedule
from magicdec.engine.untrusted import clean, last_part, shown
from magicdec.profiles.files.toml import parse_toml, read_toml
from magicdec.profiles.files.typed import Count, decoded

SCHEMA = "magicdec.gamma/1"
MOST_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class _Table:
    batch: Count
    context: Count
    gamma: Annotated[int, Meta(ge=0, le=MAX_GAMMA)]


@dataclass(frozen=True, slots=True)
class _File:
    schema: str
    gamma: Annotated[tuple[_Table, ...], Meta(min_length=1, max_length=MOST_ENTRIES)]


def read_schedule(path: Path) -> Schedule:
    """Raises ConfigError naming the file, what is wrong with it and what belongs there."""
    return _read(path, Path.cwd())


@functools.lru_cache(maxsize=8)  # a run asks several times, and the file may change meanwhile
def _read(path: Path, folder: Path) -> Schedule:
    return _schedule(str(path), read_toml(path), clean(last_part(str(path))))


def parse_schedule(text: str) -> Schedule:
    """The same of a text. Raises ConfigError."""
    return _schedule("the schedule", parse_toml("the schedule", text), "")


def schedule_text(entries: Iterable[Entry]) -> str:
    """The text of a file that read_schedule reads back."""
    tables = (f"batch = {e.batch}\ncontext = {e.context}\ngamma = {e.gamma}\n" for e in entries)
    return f'schema = "{SCHEMA}"\n' + "".join(f"\n[[gamma]]\n{table}" for table in tables)


def _schedule(where: str, data: Mapping[str, Any], source: str) -> Schedule:
    if data.get("schema") != SCHEMA:
        got = shown(data["schema"]) if isinstance(data.get("schema"), str) else "none"
        raise ConfigError(
            f"{where}: no schedule of γ: schema must be {SCHEMA!r}, got {got}; "
            "`magicdec profile export --to magicdec` writes one"
        )
    tables = decoded(_File, data, where).gamma
    try:
        return Schedule(tuple(Entry(t.batch, t.context, t.gamma) for t in tables), source)
    except ConfigError as error:
        raise error if str(error).startswith(where) else ConfigError(f"{where}: {error}") from None
