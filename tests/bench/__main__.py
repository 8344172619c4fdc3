"""`make bench`: prints the benchmark as it runs, and writes it as JSON lines.

Run it alone on the machine; ratios of one run can be compared, absolute times of two cannot.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from magicdec.cli.output.files import check_output
from magicdec.cli.output.numbers import counted

if TYPE_CHECKING:
    from tests.bench.measurement import Measurement

PARTS = (
    "transformers",
    "decoding",
    "attention",
    "search",
    "survey",
    "survey-sampled",
    "survey-cost",
)


def bench(
    document: Annotated[str, typer.Argument(help="A long text.")] = "builtin:pydoc",
    model: Annotated[str, typer.Option(help="Alias, Hugging Face id, folder or .gguf.")] = (
        "smollm2-135m"
    ),
    part: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(PARTS)}.")] = None,
    kv_dtype: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "auto",
    output: Annotated[Path, typer.Option(help="JSON lines are written here.")] = Path(
        "bench.jsonl"
    ),
) -> None:
    """Measures decoding, attention, search against floors, transformers; surveys against runs."""
    console = Console()
    judged: list[Measurement] = []
    errors = 0
    check_output(output)
    with output.open("w") as lines:
        for m in measurements(part or list(PARTS), model, document, kv_dtype):
            errors += bool(m.error)
            value = "  error" if m.value is None else f"{m.value:7.2f}"
            said = m.error or m.note
            console.print(f"{m.name:<46} {value} {m.unit:<2} {_goal(m):<9} {said}")
            lines.write(json.dumps(dataclasses.asdict(m)) + "\n")
            lines.flush()
            judged += [m] if m.goal is not None else []
    met = sum(m.met for m in judged)
    console.print(f"{met} of {len(judged)} goals met; every line is in {output}")
    _chart(judged)
    if errors:
        console.print(f"{counted(errors, 'figure')} could not be measured; run it again, alone")
        raise typer.Exit(1)


def measurements(
    parts: list[str], model: str, document: str, kv_dtype: str
) -> Iterator[Measurement]:
    """In an order that lets one prefill serve all."""
    from magicdec.engine.loading.open import open_checkpoint
    from magicdec.engine.session import open_session
    from magicdec.engine.text.documents import read_document
    from magicdec.profiles.calibration.measure import Machine
    from magicdec.profiles.calibration.steps import Rows
    from tests.bench.against import AgainstTransformers
    from tests.bench.attention import AttentionBench
    from tests.bench.decoding import BATCHES, CONTEXTS, DecodingBench
    from tests.bench.search import SearchBench
    from tests.bench.survey import SurveyBench

    if {"transformers", "decoding"} & set(parts):
        text = read_document(document)
        session = open_session(model, kv_dtype=kv_dtype)
        rows = Rows(session, text, batch=max(BATCHES), context=max(CONTEXTS))
        if "transformers" in parts:
            yield from AgainstTransformers(rows, open_checkpoint(model)).run()
        if "decoding" in parts:
            yield from DecodingBench(rows, Machine()).run()
    if "attention" in parts:
        yield from AttentionBench().run()
    if "search" in parts:
        yield from SearchBench().run()
    if surveys := {"survey", "survey-sampled", "survey-cost"} & set(parts):
        bench = SurveyBench(partial(open_session, model, kv_dtype=kv_dtype), document)
        if "survey" in surveys:
            yield from bench.greedy()
        if "survey-sampled" in surveys:
            yield from bench.sampled()
        if "survey-cost" in surveys:
            yield from bench.costs()


def _goal(m: Measurement) -> str:
    if m.goal is None:
        return ""
    return f"{'✓' if m.met else '✗'} {'≤' if m.at_most else '≥'} {m.goal:g}"


def _chart(judged: list[Measurement]) -> None:
    """How far each judged figure is from its goal; above 1 the goal is met."""
    import plotext

    shares = {
        m.name: round(m.goal / m.value if m.at_most else m.value / m.goal, 2)
        for m in judged
        if m.goal and m.value
    }
    if not shares:
        return
    plotext.simple_bar(
        list(shares), list(shares.values()), width=100,
        title="goal reached (1 = met)",
    )  # fmt: skip
    plotext.show()


if __name__ == "__main__":
    typer.run(bench)
