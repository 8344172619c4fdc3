"""llama.cpp's `llama-server` arguments: one γ for every batch and context.

As in the llama.cpp that llama-cpp-python 0.3.36 brings (`common/arg.cpp`, `common/speculative.cpp`;
b11549 has the same): `draft-simple` refuses to start without a draft model, and the rates to
replay must be as many as `--spec-draft-n-max`, in 0..1 and not rising.
"""

from __future__ import annotations

import shlex

from magicdec.engine.untrusted import shown
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import REPLAY, EngineOptions, Export, check_rates, wrong

NAME = "llama.cpp"
KNOWN = {"--spec-type", "--spec-draft-model", "--spec-draft-n-max", "--spec-draft-n-min",
         "--spec-draft-p-min", "--spec-synth-rates"}  # fmt: skip


def render(plan: Plan, options: EngineOptions) -> Export:
    plan.speculates()
    gamma = plan.best()
    notes = ["for llama.cpp b11549 or later: xargs -a FILE llama-server -m MODEL"]
    if gamma == 0:
        gamma = max(part.gamma for part in plan.schedule())
        notes.append("over all places plain decoding is best: this is the γ of the best batch")
    parts = {part.gamma for part in plan.schedule()}
    if len(parts) > 1:
        notes.append(
            f"lost: llama.cpp has no schedule; by batch the best γ are {sorted(parts)}, "
            f"this is {gamma} for all"
        )
    arguments = ["--spec-type", "draft-simple"]
    arguments += ["--spec-draft-model", options.drafter("llama.cpp")]
    arguments += ["--spec-draft-n-max", str(gamma), "--spec-draft-n-min", "0",
                  "--spec-draft-p-min", "0"]  # fmt: skip
    if options.replay:
        rates = ",".join(f"{rate:.6g}" for rate in plan.acceptance.falling[:gamma])
        arguments += ["--spec-synth-rates", rates]
        notes.append(REPLAY)
    return Export(shlex.join(arguments) + "\n", tuple(notes))


def check(text: str) -> list[str]:
    """Raises ConfigError."""
    found = read_arguments(text, KNOWN, NAME)
    if found.get("--spec-type") != "draft-simple":
        raise wrong(NAME, "--spec-type must be draft-simple")
    if not found.get("--spec-draft-model"):
        raise wrong(NAME, "draft-simple needs --spec-draft-model")
    most, least = (found.get(f"--spec-draft-n-{end}", "") for end in ("max", "min"))
    if not most.isdecimal() or not least.isdecimal() or not int(least) <= int(most) >= 1:
        raise wrong(NAME, "--spec-draft-n-max must be at least 1 and --spec-draft-n-min not above")
    if number(found.get("--spec-draft-p-min", ""), NAME) > 1:
        raise wrong(NAME, "--spec-draft-p-min lies in 0..1")
    if "--spec-synth-rates" in found:
        rates = [number(part, NAME) for part in found["--spec-synth-rates"].split(",")]
        if len(rates) != int(most):
            raise wrong(NAME, f"--spec-synth-rates needs {most} rates")
        check_rates(rates, NAME)
    return []


def read_arguments(text: str, known: set[str], engine: str) -> dict[str, str]:
    """`--name value` pairs on one line."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise wrong(engine, f"the arguments cannot be split: {error}") from None
    if not parts or len(parts) % 2 or len(text.strip().splitlines()) != 1:
        raise wrong(engine, "it must be one line of --name value pairs")
    found: dict[str, str] = {}
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        if name not in known or name in found:
            raise wrong(engine, f"argument {shown(name)} is unknown or given twice")
        found[name] = value
    return found


def number(text: str, engine: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise wrong(engine, f"{shown(text)} is no number of at least 0")
    return value
