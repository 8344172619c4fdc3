"""SGLang's `--speculative-adaptive-config` file: draft lengths to try, by batch size.

As in sglang 0.5.23 (`_load_adaptive_config`, `AdaptiveStepSlot`): keys that are numbers are lower
bounds of the batch size, a batch below the first uses the first; some others, there or in an entry,
tune the adaptation, the rest is ignored. It runs for EAGLE and EAGLE3 with topk 1, else SGLang says
that it is switched off; `--speculative-num-steps` must be one of the candidates.
"""

from __future__ import annotations

import json
import shlex

from magicdec.engine.untrusted import shown
from magicdec.profiles.export.plan import Plan, spans
from magicdec.profiles.export.settings import REPLAY, EngineOptions, Export, wrong
from magicdec.profiles.recorded.reader import parse_json

NAME = "SGLang"
TUNING = {"ema_alpha", "update_interval", "warmup_batches", "up_hysteresis", "down_hysteresis",
          "ceiling_coeff"}  # fmt: skip
NEAR = 1.03  # times the best time per token: as good, by what a short run can tell


def render(plan: Plan, options: EngineOptions) -> Export:
    """Keys are lower bounds of the batch size; the engine picks among a key's steps by itself."""
    plan.speculates()
    config: dict[str, dict[str, list[int]]] = {}
    before: list[int] = []
    for batch, (first, _) in zip(plan.batches, spans(plan.batches), strict=True):
        steps = _candidates(plan, batch)
        if steps != before:
            config[str(first)] = {"candidate_steps": steps}
        before = steps
    start = max(plan.best(plan.batches[0]), 1)
    if not any(start in entry["candidate_steps"] for entry in config.values()):
        start = max(step for entry in config.values() for step in entry["candidate_steps"])
    flags = ["--speculative-algorithm", "EAGLE3"]
    if options.draft_model:
        flags += ["--speculative-draft-model-path", options.draft_model]
    flags += ["--speculative-num-steps", str(start), "--speculative-eagle-topk", "1",
              "--speculative-num-draft-tokens", str(start + 1), "--speculative-adaptive",
              "--speculative-adaptive-config", "FILE"]  # fmt: skip
    notes = [
        f"for SGLang: {shlex.join(flags)}",
        "SGLang (checked against 0.5.23) adapts steps for EAGLE and EAGLE3 drafters with topk 1 "
        "only: the draft model must be one",
        f"candidates are the γ within {NEAR - 1:.0%} of the best; keys are lower bounds, batches "
        f"above {plan.batches[-1]} were not measured",
    ]
    if options.replay:
        length = plan.acceptance.length(min(start, len(plan.acceptance.drafted)))
        notes += [f"replay: SGLANG_SIMULATE_ACC_LEN={length:.4g} at {start} steps", REPLAY]
    return Export(json.dumps(config) + "\n", tuple(notes))


def _candidates(plan: Plan, batch: int) -> list[int]:
    if plan.fixed is not None:
        return [plan.fixed]
    costs = plan.costs(batch)
    return sorted(gamma for gamma in costs if costs[gamma] <= NEAR * min(costs.values()))


def check(text: str) -> list[str]:
    """What SGLang ignores. Raises ConfigError for what it refuses."""
    config = parse_json(text, "the configuration")
    if not isinstance(config, dict) or not config:
        raise wrong(NAME, "the file must be an object with an entry per batch size")
    entries = {key: entry for key, entry in config.items() if key.isdecimal()}
    if not entries:
        raise wrong(NAME, "there is no batch size among its keys")
    ignored = sorted(set(config) - set(entries) - TUNING)
    for key, entry in entries.items():
        if not isinstance(entry, dict) or "candidate_steps" not in entry:
            raise wrong(NAME, f"batch {key} must have candidate_steps")
        ignored += sorted(set(entry) - TUNING - {"candidate_steps"} - set(ignored))
        steps = entry["candidate_steps"]
        if not isinstance(steps, list) or not steps or not all(map(_is_step, steps)):
            raise wrong(NAME, f"candidate_steps of batch {key} must be a list of integers from 0")
    remarks = [f"SGLang ignores {', '.join(map(shown, ignored))}"] if ignored else []
    if not any(max(entry["candidate_steps"]) for entry in entries.values()):
        remarks.append("no entry speculates")
    return remarks


def _is_step(value: object) -> bool:
    return isinstance(value, int) and value >= 0  # a bool is one to Python, and so to SGLang
