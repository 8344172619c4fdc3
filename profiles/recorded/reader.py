"""Opens a profile file that anybody may have written, or that a killed run left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from magicdec.engine.draft_spec import SELF, stored_policy, who_is
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.untrusted import clean, last_part, model_name, plain_words, read_bounded, shown
from magicdec.profiles.recorded.conditions import conditions_of
from magicdec.profiles.recorded.decode import cell_from_json, header_from_json
from magicdec.profiles.recorded.header import Grid
from magicdec.profiles.recorded.run_record import RUN_SCHEMA
from magicdec.profiles.recorded.schema import OLDER, SCHEMA, Cell, CellKey, Profile

OF_CELLS = (
    "documents",
    "draft_identity",
    "draft_weights",
    "gamma_policy",
)  # in a run's environment


def profile_of_run(document: dict[str, Any], name: str) -> Profile:
    """Raises ConfigError for a document that is damaged or did not speculate."""
    try:
        header, cell = _translated(document)
    except KeyError as error:
        raise _damaged(name, f"it has no {clean(str(error), 80)}") from None
    except ValueError as error:
        raise _damaged(name, clean(str(error), 80)) from None
    except (TypeError, AttributeError):
        raise _damaged(name, "a part of it is of another kind than magicdec writes") from None
    return Profile(header_from_json(header, name), (cell_from_json(cell, name),))


def whole(name: str, documents: Iterable[str]) -> str | None:
    """The document that a row's name is, or is a part of: `book.txt` of `book.txt[:500]`."""
    return next((d for d in documents if name == d or name.startswith(f"{d}[")), None)


def _damaged(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"{name} is a damaged {RUN_SCHEMA} document: {why}; make it anew with "
        "`magicdec run --compare --json`"
    )


def _translated(run: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's figures where a profile has them; `decoding` checks them there."""
    env, config, rows = run["env"], run["config"], run["rows"]
    if config["gamma"] == 0:
        raise ValueError("gamma 0 does not speculate")
    if not rows:
        raise ValueError("it has no rows")
    baseline, spec = run.get("baseline"), run["speculative_decoding"]
    documents = {row["document"]: row["prompt_tokens"] for row in rows}
    digests = env.get("documents") or {}
    header = {
        "created": "",
        "tool": env.get("magicdec", ""),
        "environment": {
            key: model_name(str(value)) if key == "model" else value
            for key, value in env.items()
            if key not in OF_CELLS
        },
        "model": env.get("model", config["model"]),
        "dtype": env.get("dtype", config["dtype"]),
        "kv_dtype": env.get("kv_dtype", config["kv_dtype"]),
        "workload": {
            "documents": [
                {"name": name, "tokens": tokens, "sha256": digests.get(whole(name, digests) or "")}
                for name, tokens in documents.items()
            ],
            "max_new_tokens": config["max_new_tokens"],
            "conditions": conditions_of(config),
        },
        "grid": {field: [] for field in asdict(Grid())},
    }
    failure = run["error"] or ("interrupted" if run["interrupted"] else None)
    counts = {name: spec[name] for name in ("num_spec_steps", "num_draft_tokens")}
    counts["num_accepted_draft_tokens"] = spec["num_accepted_draft_tokens"]
    counts |= {name: spec.get(name) for name in ("num_cut_draft_tokens", "num_spec_tokens")}
    verdict = run.get("lossless") or {"checked": False, "reason": "run without --compare"}
    cell = {
        "key": {
            "batch": config["batch"],
            "context": max(row["prompt_tokens"] for row in rows),
            "selector": config["selector"],
            "selector_options": config["selector_option"],
            "budget": config["budget"],
            "gamma": config["gamma"],
            "temperature": config["temperature"],
            "draft_weights": env.get("draft_weights", config["draft_weights"]),
            "draft": who_is(config.get("draft", SELF)).stored,
            "draft_kv": config.get("draft_kv", "selected"),
            "tree": config.get("tree"),
            "tree_nodes": config.get("tree_nodes"),
            "gamma_policy": stored_policy(
                env.get("gamma_policy") or config.get("gamma_policy", FIXED.name)
            ),
        },
        "draft_identity": env.get("draft_identity"),
        "status": "failed" if failure else "ok",
        "error": failure,
        "repeats": [
            {
                "plain": None if baseline is None else _sample(baseline),
                "speculative": _sample(run) | counts,
                "steadiness": run.get("steadiness"),
            }
        ],
        "speculative_decoding": spec if spec["num_draft_tokens"] else None,
        "lossless": verdict,
        "speedup": {},  # computed from the sample, not taken over
    }
    return header, cell


def _sample(part: dict[str, Any]) -> dict[str, Any]:
    decode = part["decode"]
    steps = [row.get("steps") for row in part.get("rows", ())]
    return {name: decode[name] for name in ("tokens", "seconds", "steps")} | {
        "phases_s": part["phases_s"],
        "row_steps": sum(steps) if steps and None not in steps else None,
    }


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
