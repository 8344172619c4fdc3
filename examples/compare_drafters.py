"""Which drafter is accepted how often, and what it costs: drafters × workloads × budgets.

python examples/compare_drafters.py FOLDER [--novel DOC] [--minutes 25] [--quick] [--short]

FOLDER keeps one profile a workload (NAME.jsonl, schema magicdec.profile/2: `magicdec profile
show`, `compare` and `export` read it) and fills up: what is there is not measured again, so that
the same command goes on after Ctrl-C or when --minutes are over. The table of what is there is
printed as Markdown to stdout, and only that: --minutes 0 measures nothing and prints it. --short
prints a line for each drafter at the first budget instead of one for each workload.

A cell in which something else kept the machine busy is forgotten and measured again: its mean step
took much longer than its median one.

The most telling cells come first: batch 4 on every workload, then the other batches, then the
other budgets at batch 4. Drafters and selectors that this version lacks are left out and named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magicdec.cli.main import run_command_line
from magicdec.cli.settings.knobs import KNOBS
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.errors import MagicdecError
from magicdec.engine.selection import SELECTORS
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import Cell

SELECTORS_WANTED = (
    "full", "window", "streaming", "snapkv", "h2o", "triforce", "topk", "quest", "pqcache", "reuse",
)  # fmt: skip
DRAFTS_WANTED = ("lookup", "layers:10", "lookup+self")
TREES_WANTED = ("specexec", "sequoia")
NOVEL = "novel"
WORKLOADS = {"niah": "ruler:niah-multikey", "cwe": "ruler:cwe", "qa": "ruler:qa"}
DISTURBED = 1.25  # mean step / median step; seldom above 1.15 otherwise
FIRST_BATCH, BATCHES, BUDGETS = 4, (1, 8), (256, 128, 512)


@dataclass(frozen=True)
class Part:
    """One `magicdec profile record`: some drafters of a workload at one batch."""

    workload: str
    source: str
    batch: int
    grids: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.workload}, batch {self.batch}, {' '.join(self.grids)}"


def main() -> int:
    asked = arguments()
    folder: Path = asked.folder
    folder.mkdir(parents=True, exist_ok=True)
    begun, code = time.monotonic(), 0
    if asked.minutes:
        forget_disturbed(folder)
    for part in parts(sources(asked), asked.quick):
        if time.monotonic() - begun >= 60 * asked.minutes:
            note("the time is over; the same command goes on")
            break
        note(f"{(time.monotonic() - begun) / 60:.1f} min: {part.label}")
        code = record(part, folder, asked)
        if code not in (0, 1):  # 1: some cells failed, and their errors are in the profile
            break
    print("\n".join((short_table if asked.short else table)(folder)))
    return code


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the profiles are kept")
    parser.add_argument("--novel", default="builtin:pydoc", help="a long text file")
    parser.add_argument("--model", default=None, help="as for `magicdec run`")
    parser.add_argument("--minutes", type=float, default=25.0, help="begin nothing after them")
    parser.add_argument("--context", type=int, default=4000)
    parser.add_argument("--gamma", default="3", help="as for `profile record`: 3,adaptive")
    parser.add_argument("--new-tokens", type=int, default=32, help="of every row")
    parser.add_argument("--repeat", type=int, default=1, help="measurements of a cell")
    parser.add_argument("--workloads", default="novel,niah,cwe,qa", help="which of them")
    parser.add_argument("--quick", action="store_true", help="three drafters at batch 4")
    parser.add_argument("--short", action="store_true", help="a line for each drafter")
    return parser.parse_args()


def sources(asked: argparse.Namespace) -> dict[str, str]:
    """The documents of each workload. Raises SystemExit for one that does not exist."""
    known = {NOVEL: asked.novel, **WORKLOADS}
    names = asked.workloads.split(",")
    for name in names:
        if name not in known:
            sys.exit(f"no workload is called {name!r}; choose from {', '.join(known)}")
    return {name: known[name] for name in names}


def parts(sources: dict[str, str], quick: bool) -> Iterator[Part]:
    """In the order in which they are worth measuring."""
    if quick:
        itself = ("--selector", "snapkv,streaming", "--budget", str(BUDGETS[0]))
        for workload, source in sources.items():
            for grids in (itself, ("--draft", "lookup")):
                yield Part(workload, source, FIRST_BATCH, grids)
        return
    selectors = available(SELECTORS_WANTED)
    main_grids = [("--selector", ",".join(selectors), "--budget", str(BUDGETS[0])), *others()]
    for batch in (FIRST_BATCH, *BATCHES):
        for workload, source in sources.items():
            for grids in main_grids:
                yield Part(workload, source, batch, grids)
    bounded = ",".join(name for name in selectors if name != "full")
    budgets = ",".join(map(str, BUDGETS[1:]))
    for workload, source in sources.items():
        yield Part(workload, source, FIRST_BATCH, ("--selector", bounded, "--budget", budgets))


def available(names: Iterable[str]) -> list[str]:
    """Those selectors that this version has; the others are named once."""
    found = set(SELECTORS.names())
    missing = [name for name in names if name not in found]
    if missing:
        note(f"left out, not in this version: selectors {', '.join(missing)}")
    return [name for name in names if name in found]


def others() -> list[tuple[str, ...]]:
    """Ways to draft besides the model itself over a selection."""
    found: list[tuple[str, ...]] = [
        ("--draft", ",".join(DRAFTS_WANTED), "--selector", "snapkv", "--budget", str(BUDGETS[0]))
    ]
    if any(knob.name == "tree" for knob in KNOBS):
        trees = ("--tree", ",".join(TREES_WANTED), "--selector", "snapkv")
        found.append((*trees, "--budget", str(BUDGETS[0])))
    else:
        note("left out, not in this version: trees")
    return found


def forget_disturbed(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not disturbed(json.loads(line))]
        if len(kept) < len(lines):
            note(f"{path.stem}: {len(lines) - len(kept)} disturbed cells are measured again")
            path.write_text("".join(kept))


def disturbed(cell: dict[str, Any]) -> bool:
    """Whether the plain steps or the verify passes of a cell, as a line of a profile, varied by
    more than a decoding does; False for the profile's head."""
    median = cell.get("step_s", {})
    return any(
        run["phases_s"]["verify"] > DISTURBED * run["steps"] * median[name]
        for repeat in cell.get("repeats", ())
        for run, name in ((repeat["plain"], "plain"), (repeat["speculative"], "verify"))
        if median.get(name)
    )


def record(part: Part, folder: Path, asked: argparse.Namespace) -> int:
    """The exit code of `magicdec profile record`, which says itself what is wrong."""
    model = ["--model", asked.model] if asked.model else []
    return run_command_line(
        ["profile", "record", part.source, "-o", str(folder / f"{part.workload}.jsonl"), *model,
         "--context", str(asked.context), "--batch", str(part.batch), *part.grids,
         "--gamma", asked.gamma, "--max-new-tokens", str(asked.new_tokens),
         "--repeat", str(asked.repeat), "--ignore-eos"]
    )  # fmt: skip


def measured(folder: Path) -> dict[tuple[str, DraftSpec, int], list[Cell]]:
    """Cells by workload, drafter and γ, sorted by drafter, γ and workload."""
    cells: dict[tuple[str, DraftSpec, int], list[Cell]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        try:
            profile = read_profile(path)
        except MagicdecError as error:
            note(f"left out: {error}")
            continue
        for cell in profile.cells:
            if cell.status == "failed":
                note(f"failed: {path.stem}, {cell.key.label}: {cell.error}")
            else:
                cells[path.stem, cell.key.drafter, cell.key.gamma].append(cell)
    return dict(sorted(cells.items(), key=_order))


def table(folder: Path) -> Iterator[str]:
    """Markdown: a line for every drafter and workload that has cells."""
    cells = measured(folder)
    batches = _batches(cells)
    titles = ["drafter", "workload", "γ", "acceptance", "Ω", "tokens/step", "T_D / T_T",
              "T_V / T_T", "select ms/step", "select once ms/row"]  # fmt: skip
    yield from _head([*titles, *(f"speedup B {b}" for b in batches), "lossless"])
    for (workload, drafter, gamma), found in cells.items():
        yield "| " + " | ".join(_line(workload, drafter, gamma, found, batches)) + " |"


def short_table(folder: Path) -> Iterator[str]:
    """Markdown: a line for every drafter at the first budget, the workloads beside each other."""
    cells = measured(folder)
    names = {key[0] for key in cells}
    batches, workloads = _batches(cells), [w for w in (NOVEL, *WORKLOADS) if w in names]
    yield from _head(
        ["drafter", *(f"acceptance / Ω, {w}" for w in workloads), "T_D / T_T", "select ms/step",
         "once ms/row", *(f"speedup, {w}, B {' / '.join(map(str, batches))}" for w in workloads)]
    )  # fmt: skip
    for drafter, gamma in dict.fromkeys(key[1:] for key in cells):
        if drafter.budget in (None, BUDGETS[0]):
            found = {w: cells.get((w, drafter, gamma), []) for w in workloads}
            yield "| " + " | ".join(_short_line(drafter, found, batches)) + " |"


def _short_line(
    drafter: DraftSpec, found: dict[str, list[Cell]], batches: Sequence[int]
) -> Iterator[str]:
    """Times are medians over the workloads, each at the batch nearest to FIRST_BATCH."""
    yield drafter.label
    yield from (f"{_accepted(cells)} / {_length(cells)}" for cells in found.values())
    timed = [_timed(cells) for cells in found.values() if cells]
    yield _median([c.step.draft / c.step.plain for c in timed if c.step.draft and c.step.plain])
    yield _median([1e3 * (cell.step.select or 0.0) for cell in timed], 1)
    yield _median([1e3 * _selected_once(cell) for cell in timed], 0)
    for cells in found.values():
        yield " / ".join(_speedup(cells, batch) for batch in batches)


def _batches(cells: dict[tuple[str, DraftSpec, int], list[Cell]]) -> list[int]:
    return sorted({cell.key.batch for found in cells.values() for cell in found})


def _head(titles: Sequence[str]) -> Iterator[str]:
    yield "| " + " | ".join(titles) + " |"
    yield "|" + " --- |" * len(titles)


def _timed(found: Iterable[Cell]) -> Cell:
    return min(found, key=lambda cell: abs(cell.key.batch - FIRST_BATCH))


def _accepted(found: Sequence[Cell]) -> str:
    """Of all tokens drafted, whatever the batch."""
    drafted = sum(cell.num_draft_tokens for cell in found)
    return (
        f"{sum(cell.num_accepted_draft_tokens for cell in found) / drafted:.3f}" if drafted else "-"
    )


def _length(found: Sequence[Cell]) -> str:
    """Ω: accepted tokens and one more, per step that drafted."""
    steps = sum(cell.num_spec_steps for cell in found)
    return f"{sum(cell.num_spec_tokens for cell in found) / steps:.2f}" if steps else "-"


def _speedup(found: Iterable[Cell], batch: int) -> str:
    return _median([cell.speedup for cell in found if cell.key.batch == batch and cell.speedup])


def _median(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def _order(item: tuple[tuple[str, DraftSpec, int], list[Cell]]) -> tuple[object, ...]:
    (workload, drafter, gamma), _ = item
    return (drafter.order, gamma, workload)


def _line(
    workload: str, drafter: DraftSpec, gamma: int, found: Sequence[Cell], batches: Sequence[int]
) -> Iterator[str]:
    """Acceptance is pooled over the batches; times are those of the batch nearest to FIRST_BATCH,
    relative to a plain step of the same cell."""
    timed = _timed(found)
    step = timed.step
    yield from (drafter.label, workload, str(gamma), _accepted(found), _length(found))
    emitted, taken = _tokens_and_steps(found)
    yield f"{emitted / taken:.2f}" if taken else "-"
    for seconds in (step.draft, step.verify):
        yield f"{seconds / step.plain:.2f}" if seconds is not None and step.plain else "-"
    yield "-" if step.select is None else f"{step.select * 1e3:.2f}"
    yield f"{_selected_once(timed) * 1e3:.1f}"
    yield from (_speedup(found, batch) for batch in batches)
    checked = [cell.lossless for cell in found if cell.lossless.checked]
    yield "yes" if checked and all(one.ok for one in checked) else "NO" if checked else "unchecked"


def _tokens_and_steps(found: Iterable[Cell]) -> tuple[int, int]:
    """Of rows, steps without a draft included; near their end some rows take part no more."""
    runs = [(r.speculative, cell.key.batch) for cell in found for r in cell.repeats]
    return sum(run.tokens for run, _ in runs), sum(run.steps * batch for run, batch in runs)


def _selected_once(cell: Cell) -> float:
    """Seconds a row that were spent selecting outside of steps: when it was admitted."""
    each = [
        (repeat.speculative.phases.select - (cell.step.select or 0.0) * repeat.speculative.steps)
        for repeat in cell.repeats
    ]
    return max(0.0, statistics.median(each)) / cell.key.batch


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
