"""How often each of a tree's siblings was accepted, from the record of a run (`run --json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from magicdec.engine.bounded import read_bounded
from magicdec.engine.errors import ConfigError
from magicdec.profiles.storage.typed import MOST_COUNT

MOST_BYTES = 16 * 2**20
#: Nodes at which a child must have been tried for its rate to be believed.
LEAST_TRIED = 10
WANTED = "give a record of `magicdec run --tree sequoia --json`, or shares such as .8,.4,.2"


def recorded_siblings(path: Path) -> tuple[float, ...]:
    """p[k], of as many siblings as were tried often enough. Raises ConfigError naming the file."""
    try:
        record: Any = json.loads(read_bounded(path, MOST_BYTES).decode("utf-8-sig"))
    except ConfigError as error:
        raise ConfigError(f"--tree-rates: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--tree-rates @{path} is not JSON; {WANTED}") from error
    found = record.get("speculative_decoding") if isinstance(record, dict) else None
    counts = found if isinstance(found, dict) else {}
    tried, accepted = (_counts(counts.get(f"siblings_{what}")) for what in ("tried", "accepted"))
    if not tried or not accepted:
        raise ConfigError(f"--tree-rates @{path} is of a run without trees; {WANTED}")
    pairs = zip(tried, accepted, strict=False)
    rates = tuple(min(1.0, a / t) for t, a in pairs if t >= LEAST_TRIED)
    if not rates or rates[0] == 0:
        raise ConfigError(
            f"--tree-rates @{path} has too few steps: {tried[0]} tried, {accepted[0]} accepted; "
            "raise its --max-new-tokens"
        )
    return rates


def _counts(value: object) -> list[int]:
    """Empty for what is no list of counts."""
    fits = isinstance(value, list) and all(type(n) is int and 0 <= n <= MOST_COUNT for n in value)
    return value if isinstance(value, list) and fits else []
