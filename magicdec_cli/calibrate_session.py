"""Opens, measures, fits, stores and prints, for `magicdec calibrate`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from magicdec.cli import interrupts
from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.progress import Display
from magicdec.cli.output.tables import Cell, print_json, print_listing
from magicdec.cli.settings.grid_size import size_line
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.errors import ConfigError
from magicdec.engine.text.documents import read_document
from magicdec.kernels.cachedir import OVERRIDE
from magicdec.profiles.calibration.calibration import Calibration, brief, fingerprint_of
from magicdec.profiles.calibration.store import (
    as_record,
    load_calibration,
    save_calibration,
    unstorable,
)

if TYPE_CHECKING:
    from magicdec.engine.session import Session

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Found:
    """What one calibration gave; problem: why it is not stored."""

    calibration: Calibration
    path: Path | None
    problem: str
    seconds: float  # measuring
    prefill_s: float
    rounds: int
    notices: Sequence[str]  # of the session


def calibrate(
    settings: Settings, document: str, progress: Progress,
    measured: Callable[[], None] = lambda: None,
) -> Found:  # fmt: skip
    """What cannot be stored is given all the same.

    measured: called when only fitting and storing are left. Raises ConfigError, ModelError,
    OutOfMemoryError.
    """
    text = read_document(document)  # before torch: a misspelt name shows at once
    if reason := unstorable():
        TERMINAL.note(
            f"warning: {reason}: the calibration will be used and shown, and not be kept; set "
            f"{OVERRIDE} to another folder to keep it"
        )
    session = open_session(settings, progress)
    from magicdec.engine.memory.plan import available_memory
    from magicdec.profiles.calibration.fit import fit_calibration, shape_of
    from magicdec.profiles.calibration.measure import Grid, measure
    from magicdec.profiles.costs.hardware import Device

    environment = session.environment()
    grid = Grid().within(session.spec.trained_window)
    seen = measure(session, text, grid, progress)
    measured()
    progress("fitting", None)
    bandwidth, flops = seen.machine.read_rate, seen.machine.gemm_rate
    device = Device(
        f"{environment['device_name']}, {environment['threads']} threads",
        float(available_memory(session.device)), bandwidth, flops,
        source="the quickest large sum and fp32 GEMM measured while calibrating",
    )  # fmt: skip
    calibration = fit_calibration(
        seen.samples, model=shape_of(session.spec, session.model_name), device=device,
        fingerprint=fingerprint_of(environment),
    )  # fmt: skip
    path, problem = None, ""
    try:
        path = save_calibration(calibration)
    except ConfigError as error:  # minutes were spent on it
        problem = str(error)
    return Found(calibration, path, problem, seen.seconds, seen.prefill_s, seen.rounds,
                 session.notices())  # fmt: skip


def check(settings: Settings, document: str, path: Path, display: Display) -> None:
    """Real steps beside predictions; prints a line for each cell, then the errors.

    Raises OSError where the file cannot be written any more.
    """
    from magicdec.profiles.calibration.check import read_cells, require_same

    text = read_document(document)
    done = {cell.place: cell for cell in read_cells(path)}
    digest = hashlib.sha256(text.content.encode()).hexdigest()[:16]
    session = open_session(settings, display.loading)
    from magicdec.profiles.calibration.check import Check
    from magicdec.profiles.costs.measured_table import summary

    fingerprint = fingerprint_of(session.environment())
    calibration = load_calibration(session.model_name, fingerprint)
    if calibration is None:
        raise ConfigError(f"no calibration of {session.model_name}; run `magicdec calibrate` first")
    stale = calibration.stale_because(fingerprint)
    if stale:
        raise ConfigError(f"the calibration is stale ({stale}); run `magicdec calibrate` again")
    require_same(path, done.values(), calibration.created, digest)
    bench = Check(session, text, calibration, digest)
    known = list(done.values())
    if left := bench.left(known):
        display.note(size_line(left, bench.seconds(known), guessed=False))
    for share in bench.prefill():
        display.loading("prefill", share)
    display.close()
    for notice in session.notices():
        TERMINAL.note(f"warning: {notice}")
    for cell in bench.run(known, path):
        done[cell.place] = cell
        TERMINAL.note(
            f"B {cell.rows}, context {cell.context:,}, budget {cell.budget}, γ {cell.gamma}: "
            f"predicted {cell.predicted:.2f}×, measured {cell.measured:.2f}×, "
            f"error {cell.error:+.1%}"
        )
    errors = summary("check", [(cell.predicted, cell.measured) for cell in done.values()])
    print(
        f"{len(done)} cells: error of the predicted speedup median {errors.median:.1%}, "
        f"p90 {errors.p90:.1%}, bias {errors.bias:+.1%}; right side of 1 in "
        f"{errors.same_side} of {errors.judged}"
    )


def open_session(settings: Settings, progress: Progress) -> Session:
    """An engine session without documents. Raises ConfigError, ModelError."""
    from magicdec.engine.memory.free import require_room

    progress(f"opening {settings.model}", None)
    require_room(before_torch=True)
    from magicdec.engine.session import open_session as open_engine_session

    interrupts.raise_again()
    return open_engine_session(
        settings.model, device=settings.device, dtype=settings.dtype, kv_dtype=settings.kv_dtype,
        threads=settings.threads, attention=settings.attention, chunk=settings.chunk,
        progress=progress, sync_phases=True,
        prefill_cache=settings.prefill_cache_bytes,
    )  # fmt: skip


def show(settings: Settings, of_model: bool, json: bool) -> int | None:
    """Prints the stored calibration of the model, or the newest of any. Raises ConfigError."""
    calibration = load_calibration(settings.model)
    if calibration is None and not of_model:
        calibration = load_calibration()
    if calibration is None:
        raise ConfigError(f"no calibration of {settings.model}; run `magicdec calibrate`")
    if json:
        print_json(as_record(calibration))
    else:
        _print(calibration)
    return None


def report(found: Found, json: bool) -> None:
    for notice in found.notices:
        TERMINAL.note(f"warning: {notice}")
    if json:
        print_json(as_record(found.calibration))
        return
    _print(found.calibration)
    TERMINAL.note(
        f"{found.rounds} rounds in {found.seconds:.0f} s, after {found.prefill_s:.0f} s of prefill"
    )


def _print(calibration: Calibration) -> None:
    mark = calibration.fingerprint
    print(f"{mark['model']} on {calibration.hardware.device.name}, {calibration.created}")
    print(", ".join(f"{key} {brief(key, value)}" for key, value in mark.items() if key != "model"))
    if calibration.unnamed:
        print(f"made by an earlier version, which did not keep: {calibration.unnamed}")
    device = calibration.hardware.device
    print(f"read {device.bandwidth / 1e9:.1f} GB/s, fp32 GEMM {device.flops / 1e9:.0f} GFLOP/s\n")
    print_listing(*_constants(calibration), "table")
    print()
    print_listing(
        ["passes of", "cells", "median |error|", "p90", "bias"],
        [
            [r.kind, r.passes, f"{r.median:.1%}", f"{r.p90:.1%}", f"{r.bias:+.1%}"]
            for r in calibration.residuals
        ],
        "table",
    )
    print()
    print_listing(
        ["selector", "once per row of 4,000 tokens"],
        [[s.selector, f"{1e3 * s.seconds(4000):.0f} ms"] for s in calibration.selections],
        "table",
    )
    print()
    print_listing(
        ["drafted by", "budget", "tokens", "acceptance by position, all before accepted"],
        [
            [f"{a.selector}, {a.weights} weights", a.budget, a.drafted,
             " ".join(f"{rate:.2f}" for rate in a.rates)]
            for a in calibration.acceptances
        ],
        "table",
    )  # fmt: skip


def _constants(calibration: Calibration) -> tuple[list[str], list[list[Cell]]]:
    hardware = calibration.hardware
    kinds = {"model": hardware.constants, **hardware.by_weights}
    rows: list[list[Cell]] = [
        [f"{kind} weights" if kind != "model" else "model",
         f"{1e3 * c.layer_s:.3f}", f"{1e6 * c.compact_s:.2f}", f"{c.bandwidth_efficiency:.2f}",
         f"{c.gemm_efficiency:.2f}", f"{c.attention_efficiency:.2f}", f"{c.overlap:.1f}",
         f"{1e3 * c.step_s:.2f}" if kind == "model" else ""]
        for kind, c in kinds.items()
    ]  # fmt: skip
    columns = ["constants of", "layer ms", "compact µs", "bandwidth", "GEMM", "attention",
               "overlap", "step ms"]  # fmt: skip
    return columns, rows
