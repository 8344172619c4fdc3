"""Policies by the names that `--gamma` gives them. Torch-free."""

from __future__ import annotations

import hashlib
from pathlib import Path

from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import FIXED, MOST_CHOSEN, Adaptive, GammaPolicy, Schedule

CHOOSING: tuple[GammaPolicy, ...] = (Auto(), Adaptive())


def policy_of(name: str) -> GammaPolicy:
    """fixed, auto, adaptive or a schedule's file; without what a calibration knows.

    Raises ConfigError for a file that is none.
    """
    known = {policy.name: policy for policy in (FIXED, *CHOOSING)}
    return known.get(name) or _schedule(name)


def most_of(name: str) -> int:
    """The most tokens that a step drafts by the policy of that name, which is not fixed. Raises
    ConfigError."""
    if any(policy.name == name for policy in CHOOSING):
        return MOST_CHOSEN
    return _schedule(name).most


def told_apart(name: str, policy: GammaPolicy | None = None) -> str:
    """That name with, of a schedule's file, what it says: plan.toml@3fa2c1. A sweep that goes on
    after the file was changed measures other cells. policy: what was read from it. Raises
    ConfigError."""
    policy = policy or policy_of(name)
    if not isinstance(policy, Schedule):
        return name
    entries = sorted((entry.batch, entry.context, entry.gamma) for entry in policy.entries)
    return f"{name}@{hashlib.sha256(repr(entries).encode()).hexdigest()[:6]}"


def _schedule(name: str) -> Schedule:
    from magicdec.profiles.files.gamma_schedule import read_schedule  # `--help` decodes no file

    return read_schedule(Path(name))
