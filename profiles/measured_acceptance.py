"""Acceptance taken from the record of a run (`magicdec run --json`) or from a profile."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from magicdec.engine.bounded import read_bounded
from magicdec.engine.config import MAX_GAMMA
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.harmless import clean
from magicdec.profiles.costs.acceptance import Acceptance, conditional_rates
from magicdec.profiles.export.acceptance import pool
from magicdec.profiles.storage.reading import MAX_BYTES, read_profile

MOST_BYTES = 16 * 2**20
RECORD = "a record of `magicdec run --json`, or a profile"


def recorded_acceptance(path: Path, budget: int | None = None) -> Acceptance:
    """Per-position rates of one recorded run, or of a profile's drafter with most steps.

    budget: the one that a profile's drafter must have had, if the profile has any such.
    Raises ConfigError, which names the file.
    """
    if _is_profile(path):
        return _of_profile(path, budget)
    try:
        record: Any = json.loads(read_bounded(path, MOST_BYTES).decode("utf-8-sig"))
    except ConfigError as error:
        raise ConfigError(f"--alpha: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--alpha @{path} is not JSON; give {RECORD}") from error
    # The key is asked for by type: anything may be in somebody's JSON file.
    counts = record.get("speculative_decoding") if isinstance(record, dict) else None
    shares = counts.get("acceptance_rate_per_position") if isinstance(counts, dict) else None
    if not isinstance(shares, list) or not all(map(_is_share, shares[: MAX_GAMMA + 1])):
        raise ConfigError(f"--alpha @{path} has no acceptance by position; give {RECORD}")
    if not shares:
        raise ConfigError(f"--alpha @{path} is of a run that drafted nothing; record --gamma 4")
    if len(shares) > MAX_GAMMA:
        raise ConfigError(f"--alpha @{path} is of drafts beyond {MAX_GAMMA} tokens; give {RECORD}")
    return Acceptance(conditional_rates(shares), source=f"--alpha @{path}{_origin(record)}")


def _origin(record: dict[str, Any]) -> str:
    """Whose acceptance it is: it belongs to a model, a drafter and a text."""
    env, config = record.get("env"), record.get("config")
    counts = record["speculative_decoding"]
    found = [
        clean(str(place[key]))[:40]
        for place, key in ((env, "model"), (config, "selector"), (config, "budget"))
        if isinstance(place, dict) and place.get(key) is not None
    ]
    steps = counts.get("num_spec_steps")
    found += [f"{steps:,} steps"] if isinstance(steps, int) else []
    return f" ({', '.join(found)})" if found else ""


def _is_profile(path: Path) -> bool:
    try:
        first = read_bounded(path, MAX_BYTES).split(b"\n", 1)[0]
        header = json.loads(first.decode("utf-8-sig"))
    except (ConfigError, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and str(header.get("schema")).startswith("magicdec.profile/")


def _of_profile(path: Path, budget: int | None) -> Acceptance:
    profile = read_profile(path)
    cells = [cell for cell in profile.finished if cell.num_draft_tokens]
    require(bool(cells), f"--alpha @{path} has no cell that drafted; record one with --gamma 4")
    cells = [cell for cell in cells if cell.key.fixed]  # others draft on where it is likely to pay
    require(bool(cells), f"--alpha @{path} has only cells of a γ that changes; record --gamma 4")
    cells = [cell for cell in cells if cell.key.drafter.budget == budget] or cells
    steps: Counter[DraftSpec] = Counter()
    for cell in cells:
        steps[cell.key.drafter] += cell.num_spec_steps
    drafter, count = steps.most_common(1)[0]
    pooled = pool(cell for cell in cells if cell.key.drafter == drafter)
    told = f"({profile.header.model}, {drafter.label}, {count:,} steps)"
    return Acceptance(conditional_rates(pooled.rates), source=f"--alpha @{path} {told}")


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
