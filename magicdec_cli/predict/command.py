"""`magicdec predict`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

import typer

from magicdec.cli import interrupts
from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.files import but_stdout, check_output, same_file
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.loading.files import user_path

T = TypeVar("T")
MANY, CELL_S = 100_000, 2e-5  # cells that take seconds, each so many
PredictFormat = Literal["table", "md", "csv", "jsonl", "json"]
DataType = Literal["float32", "bfloat16", "float16", "int8", "fp8"]
WHERE, GRID, DRAFT, OUTPUT = "Model and hardware", "Grid", "Draft", "Output"
MEASURED = "Measurements"
EPILOG = (
    "Grids: a number, a list 1,4,8, or a range 1-6, 1000-4000+500 (steps of 500), 1024-8192*2 "
    "(doubling); 32k is 32,000. The table shows the fastest γ of each row; csv, jsonl and json "
    "hold every cell with every number."
)


def predict(
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", rich_help_panel=WHERE, show_default=False,
            help="A known model such as llama-3.1-8b, or a folder with a config.json. No weights "
            "are read. [default: that of `magicdec run`]",
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware", metavar="NAME", rich_help_panel=WHERE, show_default=False,
            help="Devices such as 8xH100, or a .toml file. [default: this machine, once it is "
            "calibrated]",
        ),
    ] = None,
    weight_dtype: Annotated[
        DataType | None,
        typer.Option(
            "--weight-dtype", metavar="TYPE", rich_help_panel=WHERE, show_default=False,
            help=f"Type of the weights: {', '.join(get_args(DataType))}. [default: float32 on a "
            "CPU, else bfloat16]",
        ),
    ] = None,
    kv_dtype: Annotated[
        DataType | None,
        typer.Option(
            "--kv-dtype", metavar="TYPE", rich_help_panel=WHERE, show_default=False,
            help="Type of K and V, likewise.",
        ),
    ] = None,
    reserve: Annotated[
        float,
        typer.Option(
            "--reserve", metavar="X", rich_help_panel=WHERE,
            help="Share of memory kept for everything but weights and KV.",
        ),
    ] = 0.1,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch", metavar="GRID", rich_help_panel=GRID, show_default=False,
            help="Rows decoded together. [default: 1,8,32,128]",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="GRID", rich_help_panel=GRID, show_default=False,
            help="Cached tokens of a row. [default: a few up to the model's window]",
        ),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            "--gamma", metavar="GRID", rich_help_panel=GRID, show_default=False,
            help="Draft lengths γ to choose from. [default: 1-6]",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="GRID", rich_help_panel=GRID, show_default=False,
            help="KV entries a draft step reads, or full; with --against, of the rows that do not "
            "say. [default: 512; full with --draft-model]",
        ),
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            "--alpha", metavar="RATE", rich_help_panel=DRAFT, show_default=False,
            help="Acceptance: one rate, rates by position .9,.85,.8 (each given that all before "
            "were accepted), or @run.json of `magicdec run --json`. [default: .8, an assumption; "
            "none for layers:N]",
        ),
    ] = None,
    draft_model: Annotated[
        str | None,
        typer.Option(
            "--draft-model", metavar="NAME", rich_help_panel=DRAFT, show_default=False,
            help="A separate model drafts. [default: the model drafts for itself]",
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft", metavar="NAME", rich_help_panel=DRAFT, show_default=False,
            help="Who drafts: self, lookup, layers:N, or a model as for --draft-model. "
            "[default: self]",
        ),
    ] = None,
    draft_weights: Annotated[
        Literal["auto", "same", "int8"],
        typer.Option(
            "--draft-weights", rich_help_panel=DRAFT,
            help="Weights that draft; auto is int8 where int8 drafts were measured.",
        ),
    ] = "auto",
    select_reads: Annotated[
        float,
        typer.Option(
            "--select-reads", metavar="X", rich_help_panel=DRAFT,
            help="KV entries read per cached token to select anew at every draft step: 0 for "
            "snapkv and streaming, .0625 for Quest with pages of 16, .5 for exact top-k.",
        ),
    ] = 0.0,
    target_speedup: Annotated[
        float,
        typer.Option(
            "--target-speedup", metavar="X", rich_help_panel=OUTPUT,
            help="The speedup whose required α is shown; 1 is break-even.",
        ),
    ] = 1.0,
    format: Annotated[
        PredictFormat | None,
        typer.Option(
            "--format", rich_help_panel=OUTPUT, show_default=False,
            help="How to write it. [default: as --output ends, else table]",
        ),
    ] = None,
    heatmap: Annotated[
        bool,
        typer.Option(
            "--heatmap", rich_help_panel=OUTPUT,
            help="Show the speedup as a map, batch × context, in place of the table.",
        ),
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", metavar="FILE", rich_help_panel=OUTPUT, show_default=False,
            help="Also draw that map into a file.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, show_default=False,
            help="Write to a file instead of stdout.",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="FILE.csv", rich_help_panel=MEASURED, show_default=False,
            help="Set predictions beside measured runs, which name their own models, hardware, "
            "batch and context.",
        ),
    ] = None,
    fit: Annotated[
        bool,
        typer.Option(
            "--fit", rich_help_panel=MEASURED,
            help="Fit the hardware's constants to them and print a hardware file.",
        ),
    ] = False,
) -> int | None:  # fmt: skip
    """Predict whether speculation pays, from sizes and data sheets; no weights are needed.

    Prices a plain step, a draft step and a verify pass for every batch, context, budget and γ, and
    says what bounds each, what acceptance a speedup takes, and what fits in memory.
    """
    output = but_stdout(output)
    for option, path in (("--output", output), ("--svg", svg)):
        if path is not None:
            names = (model, draft_model, draft, hardware, alpha and alpha.removeprefix("@"))
            check_output(path, option, inputs=_read([name for name in names if name], against))
    if against is not None or fit:
        asked_besides = {
            "--model": model, "--hardware": hardware, "--batch": batch, "--context": context,
            "--gamma": gamma, "--alpha": alpha, "--draft-model": draft_model,
            "--draft": draft,
            "--heatmap": heatmap or None, "--svg": svg, "--weight-dtype": weight_dtype,
            "--kv-dtype": kv_dtype, "--reserve": _unless(reserve, 0.1),
            "--target-speedup": _unless(target_speedup, 1.0),
            "--select-reads": _unless(select_reads, 0.0),
            "--draft-weights": _unless(draft_weights, "auto"),
        }  # fmt: skip
        chosen = format or _format_of(output)
        return _against(against, chosen, fit, output, budget, asked_besides)

    require(
        svg is None or output is None or not same_file(svg, output),
        f"--svg and --output are both {svg}; give the map a file of its own",
    )
    from magicdec.cli.predict.question import Options, question
    from magicdec.profiles.costs.grid import MOST_CELLS, price

    chosen = format or _format_of(output)
    require(
        not heatmap or chosen == "table",
        f"--heatmap belongs to the table; with {chosen} draw it to a file: --svg map.svg",
    )
    asked = question(
        Options(
            model=model, hardware=hardware, batch=batch,
            context=context, budget=budget, gamma=gamma, alpha=alpha, draft_model=draft_model,
            draft=draft,
            draft_weights=draft_weights, select_reads=select_reads, weight_dtype=weight_dtype,
            kv_dtype=kv_dtype, reserve=reserve, target_speedup=target_speedup,
        )
    )  # fmt: skip
    cells = math.prod(asked.axes.shape)
    if MANY <= cells <= MOST_CELLS:  # more are refused
        from magicdec.cli.output.numbers import clock

        TERMINAL.note(f"note: {cells:,} cells, about {clock(cells * CELL_S)}")
    from magicdec.cli.predict.output import deliver, draw

    interrupts.raise_again()  # what is imported is imported, and rows are kept as they are done
    grid = price(asked.setup, asked.axes)
    if svg is not None:
        draw(asked, grid, svg)
    return deliver(asked, grid, chosen, output, heatmap)


def _read(names: Sequence[str], against: Path | None) -> Sequence[Path]:
    """The files that options may name."""
    found = [path for name in names for path in (user_path(name), user_path(name) / "config.json")]
    return found if against is None else [*found, against]


def _unless(value: T, usual: T) -> T | None:
    """None where an option has its default: then it was not asked for."""
    return None if value == usual else value


def _against(
    path: Path | None,
    format: str,
    fit: bool,
    output: Path | None,
    budget: str | None,
    besides: Mapping[str, object],
) -> int | None:
    """Raises ConfigError for options that the file answers itself."""
    if path is None:
        raise ConfigError("--fit needs measured runs: add --against FILE.csv")
    given = [option for option, value in besides.items() if value is not None]
    require(not given, f"--against takes all from {path}; leave {', '.join(given)} out")
    from magicdec.cli.predict.against import against

    found = None
    if budget is not None:
        from magicdec.cli.predict.question import budgets
        from magicdec.profiles.costs.table_file import Given

        many = budgets(budget)
        require(
            len(many) == 1,
            f"--budget {budget} is for rows of {path} that have no draft_budget: give one number, "
            "or full",
        )
        found = Given(many[0])
    return against(path, format=format, fit=fit, output=output, budget=found)


def _format_of(output: Path | None) -> PredictFormat:
    """As the file's name ends."""
    endings: dict[str, PredictFormat] = {
        ".csv": "csv", ".jsonl": "jsonl", ".json": "json", ".md": "md",
    }  # fmt: skip
    if output is not None and output.suffix == ".svg":
        raise ConfigError(f"--output {output}: give the map's file as --svg {output}")
    return endings.get(output.suffix, "table") if output is not None else "table"
