"""Acceptance taken from the record of a run (`magicdec run --json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs.acceptance import Acceptance, conditional_rates

RECORD = "a record of `magicdec run --json`"


def recorded_acceptance(path: Path) -> Acceptance:
    """Per-position rates of one recorded run. Raises ConfigError, which names the file."""
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--alpha @{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--alpha @{path} is not JSON; give {RECORD}") from error
    # The key is asked for by type: anything may be in somebody's JSON file.
    counts = record.get("speculative_decoding") if isinstance(record, dict) else None
    shares = counts.get("acceptance_rate_per_position") if isinstance(counts, dict) else None
    if not isinstance(shares, list) or not all(_is_share(share) for share in shares):
        raise ConfigError(f"--alpha @{path} has no acceptance by position; give {RECORD}")
    if not shares:
        raise ConfigError(f"--alpha @{path} is of a run that drafted nothing; record --gamma 4")
    return Acceptance(conditional_rates(shares), source=f"--alpha @{path}")


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
