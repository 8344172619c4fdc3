"""The commands of `magicdec profile`: options only; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from magicdec.cli.listings import FormatOption


def _argument(metavar: str) -> Any:
    return typer.Argument(
        metavar=metavar,
        help="A recorded profile, or what `run --compare --json` wrote.",
        show_default=False,
    )


FileArgument = Annotated[str, _argument("FILE")]
ExportFormat = Literal[
    "vllm", "vllm-experimental", "vllm-sparse", "sglang", "tensorrt-llm", "llama.cpp",
    "aiconfigurator", "magicdec", "csv", "md",
]  # fmt: skip


def _choice(flag: str, help: str) -> Any:
    return typer.Option(flag, help=help, rich_help_panel="Cells", show_default=False)


def show(
    file: FileArgument,
    *,
    format: FormatOption = "table",
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", metavar="FILE", show_default=False, help="Also draw the tables and plots."
        ),
    ] = None,
) -> None:
    """Show a profile's cells, speedups, acceptance and where the time went."""
    from magicdec.cli.profile.show import run_show

    run_show(file, format, svg)


def compare(
    a: Annotated[str, _argument("A")],
    b: Annotated[str, _argument("B")],
    *,
    format: FormatOption = "table",
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold", metavar="SHARE", show_default=False,
            help="Exit with 1 when a figure fell significantly and by more than this (5% or "
            "0.05), a cell fails that worked, or is no longer lossless.",
        ),
    ] = None,
    by: Annotated[
        Literal["both", "tokens", "speedup"] | None,
        typer.Option(
            "--by", help="The figures that --threshold judges. [default: both]", show_default=False
        ),
    ] = None,
) -> int | None:  # fmt: skip
    """Compare two profiles cell by cell: B against A, and what is more than noise."""
    from magicdec.cli.profile.compare import run_compare
    from magicdec.cli.settings.unused import refuse_idle

    if threshold is None:
        refuse_idle({"--by": by}, "without --threshold")
    figures = {"tokens": ["tokens_per_s"], "speedup": ["speedup"]}.get(
        by or "both", ["tokens_per_s", "speedup"]
    )
    return run_compare(a, b, format, threshold, figures)


def export(
    file: FileArgument,
    *,
    to: Annotated[
        ExportFormat, typer.Option("--to", help="The engine or table.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default=False,
            help="Write FILE, and what the numbers are worth to FILE.notes.md.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="FILE is such an engine's configuration: only check it."),
    ] = False,
    draft_model: Annotated[
        str | None,
        typer.Option(
            "--draft-model", metavar="MODEL", rich_help_panel="Engine", show_default=False,
            help="The model that drafts there.",
        ),
    ] = None,
    target_timings: Annotated[
        str | None,
        typer.Option(
            "--target-timings", metavar="FILE", rich_help_panel="Engine", show_default=False,
            help="The engine's own step times, from which γ is then chosen: a .csv, .json or "
            ".toml with batch, context, gamma, plain_ms, draft_ms, verify_ms.",
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay", rich_help_panel="Engine",
            help="Make the engine replay the measured acceptance: for timing only, its text is "
            "worthless.",
        ),
    ] = False,
    schedule_keys: Annotated[
        Literal["upper", "lower"] | None,
        typer.Option(
            "--schedule-keys", rich_help_panel="Engine", show_default=False,
            help="How tensorrt-llm reads batch sizes: newer releases as upper bounds. "
            "[default: upper]",
        ),
    ] = None,
    gamma: Annotated[
        int | None, _choice("--gamma", "This draft length, instead of choosing it by cost.")
    ] = None,
    draft: Annotated[
        str | None, _choice("--draft", "Only cells of this drafter: self, lookup, layers:N, MODEL.")
    ] = None,
    tree: Annotated[
        str | None, _choice("--tree", "Only cells of this kind of tree, or none.")
    ] = None,
    selector: Annotated[str | None, _choice("--selector", "Only cells of this selector.")] = None,
    budget: Annotated[int | None, _choice("--budget", "Only cells of this budget.")] = None,
    temperature: Annotated[
        float | None, _choice("--temperature", "Only cells of this temperature.")
    ] = None,
    batch: Annotated[int | None, _choice("--batch", "Only cells of this batch.")] = None,
    context: Annotated[int | None, _choice("--context", "Only cells of this context.")] = None,
) -> None:  # fmt: skip
    """Write a profile as another engine's settings.

    Acceptance travels to other engines, costs do not: a γ chosen from this machine's costs is
    labelled as such.
    """
    from magicdec.cli.profile.export import IDLE, TABLES, run_check, run_export
    from magicdec.cli.settings.unused import refuse_idle
    from magicdec.profiles.export.plan import Wanted
    from magicdec.profiles.export.settings import EngineOptions

    cells = {
        "--gamma": gamma, "--draft": draft, "--tree": tree, "--selector": selector,
        "--budget": budget, "--temperature": temperature, "--batch": batch, "--context": context,
        "--target-timings": target_timings,
    }  # fmt: skip
    engine = {
        "--draft-model": draft_model, "--replay": replay, "--schedule-keys": schedule_keys
    }  # fmt: skip
    if check:
        refuse_idle({"--output": output, **engine, **cells}, "with --check, which writes nothing")
        run_check(file, to)
        return
    if to in TABLES:
        refuse_idle({**engine, **cells}, f"with --to {to}, which has all cells as they are")
    refuse_idle(
        {name: engine[name] for name in IDLE.get(to, ("--schedule-keys",))}, f"with --to {to}"
    )
    wanted = Wanted(
        draft=draft, tree=tree, selector=selector, budget=budget, temperature=temperature,
        batch=batch, context=context, gamma=gamma, target_timings=target_timings,
    )  # fmt: skip
    options = EngineOptions(
        draft_model=draft_model, replay=replay, lower_keys=schedule_keys == "lower"
    )
    run_export(file, to, wanted, options, output)
