"""Help pages in plain text: options by group, then the terms. Rich's would cost 150 ms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typer.core import TyperCommand

from magicdec.cli.output.console import spelled
from magicdec.cli.output.terms import PREDICT_TERMS, PROFILE_TERMS, RUN_TERMS, TUNE_TERMS


def spelling(formatter: Any) -> Any:
    """The formatter, made to lay out what stdout's encoding has characters for."""
    text, table = formatter.write_text, formatter.write_dl

    def write_dl(rows: Iterable[tuple[str, str]], **how: Any) -> None:
        table([(spelled(name), spelled(said)) for name, said in rows], **how)

    formatter.write_text = lambda line: text(spelled(line))
    formatter.write_dl = write_dl
    return formatter


class GroupedHelp(TyperCommand):
    """Lists options under the panel they were declared with."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, spelling(formatter))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record:
                panel = getattr(param, "rich_help_panel", None)
                default = "Arguments" if param.param_type_name == "argument" else "Options"
                groups.setdefault(panel or default, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=26)


class HelpWithTerms(GroupedHelp):
    """Ends with the definition of every number the command shows."""

    terms: Mapping[str, str] = RUN_TERMS

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Terms"):
            formatter.write_dl(
                [(spelled(t), spelled(d)) for t, d in self.terms.items()], col_max=22
            )


class PredictHelp(HelpWithTerms):
    """With the terms of a prediction."""

    terms = PREDICT_TERMS


class ProfileHelp(HelpWithTerms):
    """With the terms of a profile."""

    terms = PROFILE_TERMS


class TuneHelp(HelpWithTerms):
    """With the terms of a tuning."""

    terms = TUNE_TERMS
