"""The ranking of one place as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from magicdec.cli.output.columns import Column, Row
from magicdec.cli.output.console import Symbols
from magicdec.cli.output.numbers import ratio_text
from magicdec.cli.predict.page import milliseconds
from magicdec.cli.run.report import size_text
from magicdec.engine.untrusted import last_part
from magicdec.profiles.tuning.candidate import Objective, Rated
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.ranking import fitting, predicted_differ, rank
from magicdec.profiles.tuning.recommend import Recommendation
from magicdec.profiles.tuning.variants import MEASURED_ONLY

MOST_ROWS = 9


def ranking_rows(answer: Answer, found: Recommendation, objective: Objective) -> list[Row]:
    """What ran, best first; then predictions of the same batch, as far as there is room; plain
    decoding is always among them. `now`: the prediction by the step times of the runs."""
    real = answer.verdict(objective)
    here = fitting(answer.at(found.place))[0]
    predicted = rank(here, objective, predicted_differ)
    rows: list[Row] = []
    for one in [one for one in real.ordered if one.place == found.place] if real else ():
        good = real is not None and one in real.as_good
        rows.append(_row(answer, one, good) | {"measured": one})
    shown = [row["candidate"] for row in rows]
    for option in predicted.ordered:
        if option.candidate not in shown:
            rows.append(_row(answer, option, real is None and option in predicted.as_good))
    plain = next(row for row in rows if row["candidate"].plain)
    now = answer.factors()
    kept = rows[: max(MOST_ROWS, len(shown))]
    if plain not in kept:
        kept[-1] = plain
    for row in kept:
        row["chosen"] = row["candidate"] == found.candidate
        row["now"] = row["option"] and corrected(row["option"], now)
    return kept


def _row(answer: Answer, rated: Rated, good: bool) -> Row:
    """`option`: the prediction; None for a variant."""
    option = answer.option_of(rated)
    known = option or answer.variant_of(rated)
    assert known is not None, "what ran is an option or a variant"
    return {
        "candidate": rated.candidate, "option": option, "measured": None, "good": good,
        "memory": known.memory.needed,
    }  # fmt: skip


def unpredicted(rows: Sequence[Row]) -> str:
    """A line about rows that have no prediction; empty without such."""
    return MEASURED_ONLY if any(row["option"] is None for row in rows) else ""


def columns(objective: Objective) -> list[Column]:
    """In the order of the table; what is optimised gets room first."""
    by_tpot = objective.goal == "tpot" or objective.max_tpot is not None
    return [
        Column("", 0, _mark, left=True),
        Column("drafter", 0, _drafter, left=True),
        Column("γ", 0, _gamma),
        Column("measured", 1, _measured),
        Column("range", 4, _range),
        Column("predicted", 2, _predicted),
        Column("Ω", 3, _length),
        Column(
            "tokens/s",
            6 if by_tpot else 5,
            lambda row, look: _speed(row, f"{_source(row).tokens_per_s:,.1f}"),
        ),
        Column(
            "TPOT ms",
            5 if by_tpot else 6,
            lambda row, look: _speed(row, milliseconds(_source(row).tpot)),
        ),
        Column("memory", 7, lambda row, look: size_text(row["memory"])),
        Column("95%", 8, _interval),
    ]


def _mark(row: Row, look: Symbols) -> Text:
    if row["chosen"]:
        return Text(look.arrow, "bold green")
    return Text(look.tie if row["good"] else "")


def _drafter(row: Row, look: Symbols) -> Text:
    drafter = row["candidate"].drafter
    label = "plain decoding"
    if drafter is not None:  # the policy is in a column of its own
        label = replace(drafter, gamma_policy="fixed").label
        label = label.replace(" draft", "").replace(",", "")
    return Text(label, "bold" if row["chosen"] else "cyan")


def _measured(row: Row, look: Symbols) -> str | Text:
    return ratio_text(row["measured"].speedup, look) if row["measured"] else "-"


def _range(row: Row, look: Symbols) -> str:
    one = row["measured"]
    if one is None or one.candidate.plain or len(one.speedups) < 2:
        return "-"
    return f"{min(one.speedups):.2f}-{max(one.speedups):.2f}"


def _gamma(row: Row, look: Symbols) -> str:
    drafter = row["candidate"].drafter
    if drafter is None or drafter.fixed:
        return str(row["candidate"].gamma or "-")
    return last_part(drafter.gamma_policy)


def _predicted(row: Row, look: Symbols) -> str | Text:
    return ratio_text(row["option"].speedup, look) if row["option"] else "-"


def _length(row: Row, look: Symbols) -> str:
    option = row["option"]
    return "-" if option is None or option.candidate.plain else f"{option.length:.2f}"


def _interval(row: Row, look: Symbols) -> str:
    interval = row["option"] and row["option"].interval
    return f"{interval[0]:.2f}-{interval[1]:.2f}" if interval else "-"


def _source(row: Row) -> Rated:
    """The real runs where there are some."""
    source: Rated = row["measured"] or row["now"]
    return source


def _speed(row: Row, text: str) -> str:
    """Predictions are marked as such."""
    return text if row["measured"] else f"~{text}"
