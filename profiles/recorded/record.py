"""Runs a sweep: group by group, cell by cell, each written before the next begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import NO_TREE
from magicdec.engine.errors import MagicdecError, WrongWeightsError
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.predict.run import Work, assume, expected_of_lookup, full_step, predict_run
from magicdec.profiles.predict.settings import calibrated
from magicdec.profiles.recorded.from_reports import cell_of, failed_cell, prefill_of
from magicdec.profiles.recorded.passes import Listener, Pass, Passes, full_steps, steadiness
from magicdec.profiles.recorded.schema import Cell, CellKey, Predicted, Prefill
from magicdec.profiles.recorded.writer import ProfileWriter

CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class PeakMemory:
    """From its making on: of the device where there is one, else of the process (Linux only)."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            CLEAR.write_text("5")  # resets VmHWM, see proc(5)
            self._known = True
        except OSError:
            self._known = False

    def bytes(self) -> int | None:
        """None where it cannot be known."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        if not self._known:
            return None
        lines = STATUS.read_text().splitlines()
        peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
        return None if peak is None else int(peak) * 1024


#: (cell, its rows, new tokens of each) to what is expected of it; None when that is unknown.
Predict = Callable[[CellKey, Sequence[Request], int], Predicted | None]
#: (cell, its settings, its rows) to the settings that are run.
Prepare = Callable[[CellKey, DecodeConfig, Sequence[Request]], DecodeConfig]
WARM_UP_TOKENS = 8


class Bench:
    """Measures cells on the same rows."""

    def __init__(
        self, passes: Passes, listen: Listener, predict: Predict, prepare: Prepare
    ) -> None:
        self._passes, self._listen = passes, listen
        self._predict, self._prepare = predict, prepare
        self._prefill: Prefill | None = None  # of the first pass

    def run(self, config: DecodeConfig) -> Pass:
        """Raises what `Session.run` raises."""
        return self._passes.run(config, self._listen)

    def warm_up(self, config: DecodeConfig) -> None:
        """Prefills, and brings kernels, weights and memory to where a measurement finds them."""
        few = min(WARM_UP_TOKENS, config.max_new_tokens)
        done = self.run(replace(config, max_new_tokens=few))
        self._prefill = self._prefill or prefill_of(done.report)

    def measure(self, key: CellKey, config: DecodeConfig, repeats: int) -> Cell:
        """One cell. Plain and speculative passes take turns, so that a machine that slows down
        slows both.
        """
        predicted = self._predict(key, self._passes.requests, config.max_new_tokens)
        config = self._prepare(key, config, self._passes.requests)
        bare = replace(config, gamma=0)
        self.warm_up(bare)
        self.warm_up(config)
        peak = PeakMemory(self._passes.session.device)
        pairs = [(self.run(bare), self.run(config)) for _ in range(repeats)]
        memory = peak.bytes()
        verdicts = [self._passes.check(config, plain, after) for plain, after in pairs]
        return cell_of(
            key,
            [(plain.report, after.report) for plain, after in pairs],
            steadiness=[steadiness(plain, after) for plain, after in pairs],
            step=full_steps(*zip(*pairs, strict=True)),
            lossless=next((v for v in verdicts if v.checked and not v.identical), verdicts[0]),
            predicted=predicted,
            peak_memory_bytes=memory,
            prefill=self._prefill,
            draft_identity=self._passes.session.drafts.identity(config),
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that share their rows, so that these are prefilled once."""

    batch: int
    context: int
    temperature: float
    cells: tuple[CellKey, ...]


def groups(cells: Sequence[CellKey], finished: set[CellKey]) -> list[Group]:
    """What is left to do. Batch by batch, so that a cache serves all contexts of one; the longest
    context first, because shorter prompts are beginnings of longer ones and only copied then.
    """
    shared: dict[tuple[int, int, float], list[CellKey]] = {}
    for cell in cells:
        if cell not in finished:
            shared.setdefault((cell.batch, cell.context, cell.temperature), []).append(cell)
    order = sorted(shared, key=lambda rows: (-rows[0], -rows[1], rows[2]))
    return [Group(*rows, tuple(shared[rows])) for rows in order]


#: (batch, context) to rows; raises ConfigError when the documents cannot fill them.
MakeRows = Callable[[int, int], Sequence[Request]]


@dataclass(frozen=True, slots=True)
class Progress:
    """Before a cell (`cell` is None) or after it; seconds_left is None before the first is done."""

    key: CellKey
    done: int
    total: int
    seconds_left: float | None
    cell: Cell | None = None


@dataclass(slots=True)
class Recording:
    """Everything but what is to be measured."""

    session: Session
    make_rows: MakeRows
    repeats: int
    listen: Listener
    tell: Callable[[Progress], None]
    predict: Predict
    prepare: Prepare
    unwritten: Callable[[Cell], str]  # shows the cell that could not be written, and says where

    def run(self, cells: Mapping[CellKey, DecodeConfig], writer: ProfileWriter) -> None:
        """Measures each cell with its settings, but for those that the file has. One that fails is
        written as failed, and the sweep goes on.

        Raises OSError when the file cannot be written.
        """
        todo = groups(list(cells), writer.finished)
        total, done, begun = sum(len(group.cells) for group in todo), 0, time.monotonic()
        for group in todo:
            measure = self._measure(group)
            for key in group.cells:
                spent = time.monotonic() - begun
                left = spent / done * (total - done) if done else None
                self.tell(Progress(key, done, total, left))
                try:
                    cell = measure(key, cells[key])
                except WrongWeightsError:  # no cell of them counts
                    raise
                except Exception as error:  # whatever it is, the other cells can be measured
                    cell = failed_cell(key, _reason(error))
                try:
                    writer.append(cell)
                except OSError as error:
                    error.add_note(self.unwritten(cell))
                    raise
                done += 1
                left = (time.monotonic() - begun) / done * (total - done)
                self.tell(Progress(key, done, total, left, cell))

    def _measure(self, group: Group) -> Callable[[CellKey, DecodeConfig], Cell]:
        """Measures cells of a group. Its rows are made with the first cell that needs them."""
        made: list[Bench] = []

        def measure(key: CellKey, config: DecodeConfig) -> Cell:
            if not made:
                rows = self.make_rows(group.batch, group.context)
                passes = Passes(self.session, rows, group.batch)
                made.append(Bench(passes, self.listen, self.predict, self.prepare))
            return made[0].measure(key, config, self.repeats)

        return measure


def _reason(error: Exception) -> str:
    said = " ".join(str(error).split())
    return (said if isinstance(error, MagicdecError) else f"{type(error).__name__}: {said}")[:1000]


@dataclass(frozen=True, slots=True)
class Predictor:
    """Of cells of the model and machine that `calibration` holds for; None predicts nothing.

    shape: the sizes of the draft model that a cell names.
    """

    calibration: Calibration | None
    shape: Callable[[str], ModelShape | None] = lambda name: None

    def __call__(
        self, key: CellKey, requests: Sequence[Request], new_tokens: int
    ) -> Predicted | None:
        """None without a calibration, and for rows that end with their prefill."""
        if (
            self.calibration is None
            or new_tokens < 2
            or key.tree != NO_TREE
            or key.kind == "cascade"
            or not key.fixed
        ):
            return None
        model = self.shape(key.draft) if key.kind == "model" else None
        if key.kind == "model" and model is None:
            return None
        work = Work.of(key.drafter, key.gamma, requests, key.batch, new_tokens, model)
        step = full_step(self.calibration, work)
        times = StepTimes(
            plain=float(step.plain),
            draft=float(step.draft_pass.total),
            verify=float(step.verify),
            select=float(key.gamma * step.search + step.refresh),
            rest=None,
        )
        if key.kind == "layers":  # what is accepted of an early exit cannot be assumed
            return Predicted(None, times)
        if key.kind == "lookup":
            assumed = expected_of_lookup([r.tokens for r in requests], new_tokens, key.gamma)
        else:
            assumed = assume(self.calibration, work)
        run = predict_run(self.calibration, work, assumed)
        return Predicted(run.speedup, times)


@dataclass(frozen=True, slots=True)
class Preparation:
    """Of cells of the model and machine that `calibration` holds for. Without one settings stay as
    they are."""

    calibration: Calibration | None

    def __call__(
        self, key: CellKey, config: DecodeConfig, requests: Sequence[Request]
    ) -> DecodeConfig:
        if self.calibration is None:
            return config
        return calibrated(config, self.calibration, key.drafter, key.gamma, requests, key.batch)
