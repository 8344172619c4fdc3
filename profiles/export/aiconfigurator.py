"""AIConfigurator's arguments: draft length and mean accepted tokens, for its simulation.

As in aiconfigurator 0.12.0: `--nextn` and `--nextn-accepted` of its command line, within 0..nextn
(`normalize_speculative_decoding`).
"""

from __future__ import annotations

from magicdec.profiles.export.llama_cpp import number, read_arguments
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import EngineOptions, Export, wrong

NAME = "AIConfigurator"


def render(plan: Plan, options: EngineOptions) -> Export:
    plan.speculates()
    gamma = plan.best() or max(part.gamma for part in plan.schedule())
    accepted = plan.acceptance.length(gamma) - 1
    notes = (
        f"--nextn-accepted is Ω − 1 = {accepted:.4g} at γ {gamma}, the measured acceptance; "
        "AIConfigurator (checked against 0.12.0) brings its own costs",
    )
    return Export(f"--nextn {gamma} --nextn-accepted {accepted:.6g}\n", notes)


def check(text: str) -> list[str]:
    """Raises ConfigError."""
    found = read_arguments(text, {"--nextn", "--nextn-accepted"}, NAME)
    gamma = found.get("--nextn", "")
    if not gamma.isdecimal() or int(gamma) < 1:
        raise wrong(NAME, "--nextn must be an integer of at least 1")
    if number(found.get("--nextn-accepted", ""), NAME) > int(gamma):
        raise wrong(NAME, "--nextn-accepted must lie in 0..nextn")
    return []
