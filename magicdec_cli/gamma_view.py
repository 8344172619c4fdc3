"""How γ was chosen or came out, and what a cascade's inner drafter did, for reports and tables."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.console import Symbols
from magicdec.engine.events import InnerDrafts
from magicdec.engine.gamma.policy import GammaPolicy
from magicdec.engine.report import Tally
from magicdec.profiles.storage.schema import Cell, CellKey

MAX_CHANGES = 4


def gamma_lines(policy: GammaPolicy, most: int, report: Tally, look: Symbols) -> Text:
    """The policy, the mean γ of all steps, and when it changed."""
    text = Text.assemble((f"{look.gamma} ", "dim"), (policy.name, "bold"))
    text.append(f", mean {report.mean_gamma or 0:.2f}", "bold")
    text.append(f" of at most {most}", "dim")
    if how := choice(policy):
        text.append(f": {how}", "dim")
    changes = report.gamma_chosen
    if len(changes) > 1:
        shown = [
            f"step {c.step}: {c.gamma} (B {c.rows}, context {c.context:,})"
            for c in changes[:MAX_CHANGES]
        ]
        if len(changes) > MAX_CHANGES:
            shown.append(f"and {len(changes) - MAX_CHANGES} more changes; --json lists all")
        text.append("\n  " + "; ".join(shown), "dim")
    return text


def cell_gamma(cell: Cell, *, most: bool = False) -> str:
    """γ of a recorded cell; of one that changes the mean, and with `most` its bound: 2.3 of 8."""
    gamma, mean = cell.key.gamma, cell.mean_gamma
    if cell.key.fixed:
        return str(gamma)
    if mean is None:
        return key_gamma(cell.key)
    return f"{mean:.1f}" + (f" of {gamma}" if most else "")


def key_gamma(key: CellKey) -> str:
    """γ of a setting: of one that changes only its bound is known."""
    return str(key.gamma) if key.fixed else f"up to {key.gamma}"


def inner_line(inner: InnerDrafts) -> Text:
    """Acceptance inside the drafts of a cascade."""
    text = Text.assemble(("inner drafts ", "dim"))
    text.append(f"{inner.accepted:,} of {inner.drafted:,} accepted by the self-draft", "bold")
    length = 1 + inner.accepted / inner.passes if inner.passes else 0.0
    return text.append(f", {length:.2f} tokens per draft pass", "dim")


def choice(policy: GammaPolicy) -> str:
    """How the policy chooses, in a few words."""
    if policy.stop is not None:
        words = f"a draft ends where it is accepted with less than {policy.stop:g}"
        return f"{words} ({policy.source})" if policy.source else words
    return policy.source
