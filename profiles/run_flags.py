"""A way to draft as flags of `magicdec run`. Torch-free."""

from __future__ import annotations

from magicdec.profiles.storage.drafter import Drafter


def run_flags(drafter: Drafter) -> list[str]:
    """Who drafts, over what; γ, trees, weights and temperature are left to the caller."""
    parts = [] if drafter.kind == "self" else ["--draft", drafter.draft]
    if drafter.selector is None:
        return parts
    if drafter.budget is None:
        return [*parts, "--draft-kv", "full"]
    parts += ["--selector", drafter.selector]
    for name, value in drafter.selector_options:
        parts += ["--selector-option", f"{name}={value}"]
    return [*parts, "--budget", str(drafter.budget)]
