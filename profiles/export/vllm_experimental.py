"""γ by batch size and context, as proposed for vLLM (pull request 48944).

Not in vLLM 0.33.0, which refuses entries of five items.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import shown
from magicdec.profiles.export.plan import Plan, spans
from magicdec.profiles.export.settings import REPLAY, EngineOptions, Export, is_count, wrong
from magicdec.profiles.export.vllm import read, replayed
from magicdec.profiles.export.vllm_config import NAME, SCHEDULE, Speculative, check_rules
from magicdec.profiles.recorded.reader import parse_json


def render(plan: Plan, options: EngineOptions) -> Export:
    plan.speculates()
    if not plan.contexts or any(context is None for _, context in plan.times):
        raise ConfigError("the step times name no context; use --to vllm, or add a context column")
    entries = [
        [*batches, *contexts, plan.best(batch, context)]
        for batch, batches in zip(plan.batches, spans(plan.batches), strict=True)
        for context, contexts in zip(plan.contexts, spans(plan.contexts), strict=True)
    ]
    most = max(entry[4] for entry in entries)
    config: dict[str, Any] = {
        "method": "draft_model",
        "model": options.drafter("vllm-experimental"),
        "num_speculative_tokens": most,
        SCHEDULE: entries,
    }
    notes = [
        "EXPERIMENTAL: five-item entries are a proposal (vllm pull request 48944, which now calls "
        "the member speculative_token_schedule and keeps this name); released versions refuse them",
        f"beyond batch {plan.batches[-1]} and context {plan.contexts[-1]:,} nothing was measured",
    ]
    if options.replay:
        config |= replayed(plan, most)
        notes.append(REPLAY)
    return Export(json.dumps(config) + "\n", tuple(notes))


def check(text: str) -> list[str]:
    """Raises ConfigError unless the entries tile a rectangle: every batch range × context range.

    All else is as vLLM has it."""
    members = parse_json(text, "the configuration")
    entries = members.pop(SCHEDULE, None) if isinstance(members, dict) else None
    config = read(json.dumps(members), Speculative)
    remarks = check_rules(config)
    if not isinstance(entries, list) or not entries:
        raise wrong(NAME, f"{SCHEDULE} must be a list of [bs, bs, context, context, K]")
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 5 or not all(map(is_count, entry)):
            raise wrong(NAME, f"an entry must be five integers, got {shown(entry)}")
        if entry[4] > config.num_speculative_tokens:
            raise wrong(NAME, f"K {entry[4]} exceeds num_speculative_tokens")
    batches = sorted({(entry[0], entry[1]) for entry in entries})
    contexts = sorted({(entry[2], entry[3]) for entry in entries})
    for axis, ranges in (("batch", batches), ("context", contexts)):
        if ranges[0][0] != 1:
            raise wrong(NAME, f"the first {axis} range must start at 1, got {ranges[0][0]}")
        if any(last < first for first, last in ranges):
            raise wrong(NAME, f"a {axis} range ends before it starts")
        if any(after[0] <= before[1] for before, after in pairwise(ranges)):
            raise wrong(NAME, f"{axis} ranges overlap")
    if any(after[0] != before[1] + 1 for before, after in pairwise(contexts)):
        raise wrong(NAME, "context ranges must be contiguous")
    cells = [tuple(entry[:4]) for entry in entries]
    full = {(*batch, *context) for batch in batches for context in contexts}
    if len(cells) != len(full) or set(cells) != full:
        raise wrong(NAME, "every batch range needs each context range exactly once")
    return remarks
