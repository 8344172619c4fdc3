"""`make bench`: prints the benchmark as it runs, and writes it as JSON lines.

Run it alone on the machine; ratios of one run can be compared, absolute times of two cannot.
"""

from __future__ import annotations

import dataclasses
import json
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def bench(
    document: Annotated[str, typer.Argument(help="A long text.")] = "builtin:pydoc",
    model: Annotated[str, typer.Option(help="Alias, Hugging Face id, folder or .gguf.")] = (
        "smollm2-135m"
    ),
    output: Annotated[Path, typer.Option(help="JSON lines are written here.")] = Path(
        "bench.jsonl"
    ),
) -> None:
    """Measures decoding at 4 rows of 4,000 tokens, and attention at several shapes."""
    from magicdec.profiles.bench.attention import AttentionBench
    from magicdec.profiles.bench.decoding import DecodingBench

    console = Console()
    with output.open("w") as lines:
        for m in chain(DecodingBench(model, document).run(), AttentionBench().run()):
            goal = "" if m.goal is None else f"  goal {'≤' if m.at_most else '≥'} {m.goal:g}"
            console.print(f"{m.name:<52} {m.value:8.2f} {m.unit:<9}{m.note}{goal}")
            lines.write(json.dumps(dataclasses.asdict(m)) + "\n")
            lines.flush()


if __name__ == "__main__":
    typer.run(bench)
