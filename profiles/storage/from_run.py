"""A `magicdec run --json` document as a profile of one cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from magicdec.engine.draft_spec import SELF, stored_policy, who_is
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.harmless import clean, model_name
from magicdec.profiles.records import RUN_SCHEMA
from magicdec.profiles.storage.conditions import conditions_of
from magicdec.profiles.storage.decoding import cell_from_json, header_from_json
from magicdec.profiles.storage.header import Grid
from magicdec.profiles.storage.schema import Profile

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
