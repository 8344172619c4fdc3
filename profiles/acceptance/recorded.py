"""Acceptance, of a tree's siblings too, from the record of a run (`run --json`) or a profile."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from magicdec.engine.config import MAX_GAMMA
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.untrusted import clean, read_bounded
from magicdec.profiles.acceptance.rates import AcceptanceRates, conditional_rates, pooled
from magicdec.profiles.recorded.reader import MAX_BYTES, read_profile

MOST_BYTES = 16 * 2**20
MOST_COUNT = 10**9  # drafts that anybody counts
RECORD = "a record of `magicdec run --json`, or a profile"
#: Nodes of a tree at which a child must have been tried for its rate to be believed.
LEAST_TRIED = 10
SIBLINGS = "give a record of `magicdec run --tree sequoia --json`, or shares such as .8,.4,.2"


def recorded_acceptance(path: Path, budget: int | None = None) -> AcceptanceRates:
    """Per-position rates of one recorded run, or of a profile's drafter with most steps.

    budget: the one that a profile's drafter must have had, if the profile has any such.
    Raises ConfigError, which names the file.
    """
    if _is_profile(path):
        return _of_profile(path, budget)
    record, counts = _counts(path, "--alpha", f"give {RECORD}")
    shares = counts.get("acceptance_rate_per_position")
    if not isinstance(shares, list) or not all(map(_is_share, shares[: MAX_GAMMA + 1])):
        raise ConfigError(f"--alpha @{path} has no acceptance by position; give {RECORD}")
    if not shares:
        raise ConfigError(f"--alpha @{path} is of a run that drafted nothing; record --gamma 4")
    if len(shares) > MAX_GAMMA:
        raise ConfigError(f"--alpha @{path} is of drafts beyond {MAX_GAMMA} tokens; give {RECORD}")
    return AcceptanceRates(conditional_rates(shares), f"--alpha @{path}{_origin(record)}")


def recorded_siblings(path: Path) -> tuple[float, ...]:
    """p[k], how often the k-th child of a node was accepted when those before it were not; of as
    many as were tried often enough. Raises ConfigError naming the file."""
    _, found = _counts(path, "--tree-rates", SIBLINGS)
    tried, accepted = (_whole(found.get(f"siblings_{what}")) for what in ("tried", "accepted"))
    if not tried or not accepted:
        raise ConfigError(f"--tree-rates @{path} is of a run without trees; {SIBLINGS}")
    pairs = zip(tried, accepted, strict=False)
    rates = tuple(min(1.0, a / t) for t, a in pairs if t >= LEAST_TRIED)
    if not rates or rates[0] == 0:
        raise ConfigError(
            f"--tree-rates @{path} has too few steps: {tried[0]} tried, {accepted[0]} accepted; "
            "raise its --max-new-tokens"
        )
    return rates


def _counts(path: Path, option: str, wanted: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's record and, of it, what speculation did, empty where there is nothing of the kind.
    Raises ConfigError naming the option and the file."""
    try:
        record: Any = json.loads(read_bounded(path, MOST_BYTES).decode("utf-8-sig"))
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option} @{path} is not JSON; {wanted}") from error
    # The key is asked for by type: anything may be in somebody's JSON file.
    counts = record.get("speculative_decoding") if isinstance(record, dict) else None
    return record, counts if isinstance(counts, dict) else {}


def _whole(value: object) -> list[int]:
    """Empty for what is no list of counts."""
    fits = isinstance(value, list) and all(type(n) is int and 0 <= n <= MOST_COUNT for n in value)
    return value if isinstance(value, list) and fits else []


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


def _of_profile(path: Path, budget: int | None) -> AcceptanceRates:
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
    counts = pooled(cell.acceptance for cell in cells if cell.key.drafter == drafter)
    told = f"({profile.header.model}, {drafter.label}, {count:,} steps)"
    return AcceptanceRates(conditional_rates(counts.falling), f"--alpha @{path} {told}")


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
