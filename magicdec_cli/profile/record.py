"""Runs `magicdec profile record`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from magicdec.cli import session_api
from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.numbers import clock, counted
from magicdec.cli.output.progress import Display
from magicdec.cli.settings.grid_size import refuse_large, size_line
from magicdec.cli.settings.grids import Ahead, Grids, drafters, gammas, ways
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.draft_spec import NO_TREE, SELF, DraftSpec, who_is
from magicdec.engine.errors import ConfigError, MagicdecError, PluginError, require
from magicdec.engine.events import Event, PrefillProgress
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.request import Request
from magicdec.engine.selection import measured_as
from magicdec.engine.text.documents import digests
from magicdec.engine.untrusted import last_part, model_name
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.files.gamma_names import told_apart
from magicdec.profiles.recorded.conditions import conditions_of
from magicdec.profiles.recorded.encode import cell_to_json
from magicdec.profiles.recorded.header import Grid, Header, Source
from magicdec.profiles.recorded.reader import disturbances
from magicdec.profiles.recorded.schema import Cell, CellKey
from magicdec.profiles.recorded.writer import ProfileWriter

if TYPE_CHECKING:
    from magicdec.engine.session import Session
    from magicdec.profiles.machine.expected_time import Pace
    from magicdec.profiles.recorded.record import Group, Progress


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """What a sweep is to measure, all checked that can be without a model."""

    settings: Settings
    base: DecodeConfig
    ways: Sequence[tuple[DraftSpec, Ahead]]
    grid: Grid
    documents: Sequence[str]
    path: Path
    repeat: int
    left_out: Sequence[str] = ()  # combinations of the grid that cannot be

    @classmethod
    def of(cls, grids: Grids, documents: Sequence[str], path: Path, repeat: int) -> RecordPlan:
        """Raises ConfigError."""
        settings = grids.settings
        contexts = grids.values("context")
        require(None not in contexts, "no prompt lengths to measure; add --context 1000-4000*2")
        aheads = gammas(grids)
        left_out: list[str] = []
        of_drafters = ("draft", "draft_kv", "selector", "budget", "tree", "tree_nodes")
        refuse_large({name: len(grids.values(name)) for name in of_drafters})
        found = drafters(
            grids.values("selector"), grids.values("budget"), settings.selector_option,
            grids.values("draft"), grids.values("draft_kv"),
            list(itertools.product(grids.values("tree"), grids.values("tree_nodes"))), left_out,
        )  # fmt: skip
        axes = {
            name: len(grids.values(name))
            for name in ("batch", "context", "temperature", "draft_weights")
        } | {"gamma": len(aheads), "the drafters": len(found)}
        refuse_large(axes)
        cells_of = ways(found, aheads, left_out)
        temperatures = grids.values("temperature")
        coldest = min(temperatures)
        grid = Grid(
            batch=grids.values("batch"), context=contexts,
            selector=tuple(dict.fromkeys(d.selector for d in found if d.selector)),
            budget=tuple(dict.fromkeys(d.budget for d in found if d.budget)),
            gamma=tuple(dict.fromkeys(ahead.gamma for ahead in aheads)),
            temperature=temperatures, draft_weights=grids.values("draft_weights"),
            draft=grids.values("draft"), draft_kv=grids.values("draft_kv"),
            tree=grids.values("tree"),
            gamma_policy=tuple(dict.fromkeys(told_apart(ahead.policy) for ahead in aheads)),
        )  # fmt: skip
        # Checked at the coldest: what has no effect on greedy cells must not be asked of them.
        base = _plain(settings, coldest)
        return cls(settings, base, cells_of, grid, documents, path, repeat, left_out)

    def seconds(self, todo: Sequence[Group], pace: Pace) -> float:
        """About what measuring these takes: each cell is run plainly and drafted, to warm up and
        then `repeat` times."""
        from magicdec.profiles.recorded.record import WARM_UP_TOKENS

        tokens, total = self.base.max_new_tokens, 0.0
        for group in todo:
            of_each = 2 * (self.repeat * tokens + min(WARM_UP_TOKENS, tokens))
            decoded = pace.decode(group.batch, group.context, of_each)
            total += pace.prefill(group.context) + len(group.cells) * decoded
        return total

    def cells(self, session: Session) -> dict[CellKey, DecodeConfig]:
        """Every combination, once; `auto` weights are what they come to here.

        Raises ConfigError for two draft models that a profile could not tell apart.
        """
        found: dict[CellKey, DecodeConfig] = {}
        for (drafter, ahead), batch, context, temperature, weights in itertools.product(
            self.ways, self.grid.batch, self.grid.context, self.grid.temperature,
            self.grid.draft_weights,
        ):  # fmt: skip
            sampling = _plain(self.settings, temperature).sampling
            config = ahead.config(
                drafter,
                replace(self.base, sampling=sampling, draft_weights=cast(DraftWeights, weights)),
            )
            used = measured_as(drafter, temperature, _weights(config, session))
            named = replace(used, gamma_policy=told_apart(ahead.policy)).stored
            key = CellKey.at(named, batch=batch, context=context, gamma=ahead.gamma)
            other = found.setdefault(key, config)
            require(
                other.draft == config.draft,
                f"the draft models {other.draft} and {config.draft} have one name; record them "
                "apart",
            )
        return found


def _weights(config: DecodeConfig, session: Session) -> str:
    from magicdec.engine.drafters.base import draft_weights

    try:
        return draft_weights(config, session.device, session.dtype)
    except PluginError:  # its cell says so, and fails
        return "same" if config.draft_weights == "auto" else config.draft_weights


def _plain(settings: Settings, temperature: float) -> DecodeConfig:
    """What all cells share; who drafts is each cell's own."""
    return replace(
        settings, temperature=temperature, draft=SELF, draft_kv="selected", tree=NO_TREE,
        gamma_policy=FIXED.name,
    ).decode_config()  # fmt: skip


def record_session(plan: RecordPlan, display: Display) -> int:
    """Returns how many cells failed. Raises ConfigError, ModelError, OSError."""
    session, documents = session_api.open_engine(plan.documents, plan.settings, display.loading)
    identities = _check_drafts(plan, session)
    from magicdec.cli.run.prediction import usable_calibration
    from magicdec.profiles.calibration.fit import shape_of
    from magicdec.profiles.machine.expected_time import Pace
    from magicdec.profiles.recorded.record import Predictor, Preparation, Recording, groups

    session.require_intact()  # the file will name the weights, and go on with no others
    settings, environment = plan.settings, session.environment()
    calibration, why_not = usable_calibration(settings, environment)
    if why_not:
        display.note(why_not)
    model = model_name(session.model_name)  # no folders of the user's
    told = {**environment, "model": model}
    header = Header(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=str(environment["magicdec"]),
        environment={key: value for key, value in told.items() if _scalar(value)},  # type: ignore[misc]
        model=model,
        dtype=str(environment["dtype"]),
        kv_dtype=str(environment["kv_dtype"]),
        documents=tuple(
            Source(last_part(name), None, digest) for name, digest in digests(documents).items()
        ),
        max_new_tokens=plan.base.max_new_tokens,
        conditions=conditions_of(asdict(settings), plan.base.tree_rates),
        grid=plan.grid,
    )

    def rows(batch: int, context: int) -> Sequence[Request]:
        made = session.requests(
            documents, context=context, batch=batch, take=settings.take, rows=settings.rows,
            prompt=settings.prompt, raw=settings.raw,
        )  # fmt: skip
        longest = max(len(request.tokens) for request in made)
        if longest < 0.9 * context:
            raise ConfigError(
                f"the documents fill {longest:,} of context {context:,}; give longer ones"
            )
        return made

    names = {who_is(draft).stored: draft for draft in plan.grid.draft}

    def shape(draft: str) -> ModelShape | None:
        spec = session.drafts.spec(replace(plan.base, draft=names[draft]))
        return None if spec is None else shape_of(spec, draft)

    measured: list[Cell] = []

    def tell(progress: Progress) -> None:
        measured.extend([progress.cell] if progress.cell is not None else [])
        display.loading(_line(progress), progress.done / progress.total)

    def listen(event: Event) -> None:
        if isinstance(event, PrefillProgress) and event.done > event.reused:
            display.loading("prefill", event.done / event.total)

    with ProfileWriter(plan.path, header) as writer:
        writer.same_drafts(identities)
        if writer.unnamed:
            TERMINAL.note(
                f"warning: {plan.path} is of an earlier version, which kept no {writer.unnamed}: "
                "it goes on, but whether these are still the same only you know"
            )
        predict = Predictor(calibration, shape)
        prepare = Preparation(calibration)
        recording = Recording(session, rows, plan.repeat, listen, tell, predict, prepare, _show)
        cells = plan.cells(session)
        there = sum(cell in writer.finished for cell in cells)
        pace = Pace.of(calibration, shape_of(session.spec, model), environment)
        todo = groups(list(cells), writer.finished)
        if left := sum(len(group.cells) for group in todo):
            display.note(size_line(left, plan.seconds(todo, pace), pace.guessed))
        if there:
            display.note(f"{there} of {counted(len(cells), 'cell')} are in {plan.path} already")
        told_first = session.notices()
        for notice in told_first:
            TERMINAL.note(f"warning: {notice}")
        try:
            recording.run(cells, writer)
        finally:
            for notice in session.notices():
                if notice not in told_first:
                    TERMINAL.note(f"warning: {notice}")
    for line in disturbances(measured):
        TERMINAL.note(f"warning: {line}")
    return sum(cell.status == "failed" for cell in measured)


def _check_drafts(plan: RecordPlan, session: Session) -> dict[str, str]:
    """The identities of those that are other models, by name. Raises ConfigError, ModelError where
    none of the drafts can be; one of several that cannot fails its own cells."""
    drafts = {drafter.draft: None for drafter, _ in plan.ways}
    refused: list[MagicdecError] = []
    found: dict[str, str] = {}
    for draft in drafts:
        try:
            if identity := session.drafts.identity(replace(plan.base, draft=draft, gamma=1)):
                found[draft] = identity
        except MagicdecError as error:
            refused.append(error)
    if len(refused) == len(drafts):
        raise refused[0]
    return found


def _show(cell: Cell) -> str:
    """As the line that the file lacks: it took its time to measure."""
    try:
        print(json.dumps(cell_to_json(cell), allow_nan=False, separators=(",", ":")), flush=True)
    except OSError:
        return "stdout cannot be written either"
    return "the cell that it lacks is on stdout"


def _line(progress: Progress) -> str:
    cell, left = progress.cell, progress.seconds_left
    tail = "" if left is None else f", about {clock(left)} left"
    if cell is None:
        return f"cell {progress.done + 1}/{progress.total}: {progress.key.label}{tail}"
    speedup = cell.speedup
    result = cell.error or (f"speedup {speedup:.2f}" if speedup else "measured")
    if cell.disturbed:
        brief = next(steady.brief for steady in cell.watched if steady.disturbed)
        result += f" (disturbed: {brief})"
    return f"cell {progress.done}/{progress.total}: {result}{tail}"


def _scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
