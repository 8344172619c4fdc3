"""Runs of one setting as samples of one cell, and cells of one subject as one profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from magicdec.profiles.calibrated import FINGERPRINT
from magicdec.profiles.costs.acceptance import summed
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.storage.header import Header
from magicdec.profiles.storage.schema import Cell, CellKey, Profile, Verdict, median_of

Subject = tuple[object, ...]


def subject_of(header: Header) -> Subject:
    """Equal for what may stand in one file: the same model, machine, documents and conditions."""
    environment = tuple((key, header.environment.get(key)) for key in FINGERPRINT)
    documents = tuple(sorted((s.name, s.sha256 or "") for s in header.documents))
    conditions = tuple(sorted((key, repr(value)) for key, value in header.conditions.items()))
    return header.model, header.dtype, header.kv_dtype, documents, conditions, environment


def by_subject(profiles: Iterable[Profile]) -> list[Profile]:
    """One profile for each subject, its cells pooled, in the order in which they first came."""
    found: dict[Subject, tuple[Header, list[Cell]]] = {}
    for profile in profiles:
        _, cells = found.setdefault(subject_of(profile.header), (profile.header, []))
        cells += profile.cells
    return [Profile(header, tuple(pooled(cells))) for header, cells in found.values()]


def pooled(cells: Iterable[Cell]) -> list[Cell]:
    """One cell of each setting and draft model. What failed says nothing beside what did not."""
    groups: dict[tuple[CellKey, str | None], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.key, cell.draft_identity), []).append(cell)
    return [_one(group) for group in groups.values()]


def _one(cells: Sequence[Cell]) -> Cell:
    done = [cell for cell in cells if cell.status == "ok"]
    if len(done) < 2:
        return done[0] if done else cells[-1]
    peaks = [cell.peak_memory_bytes for cell in done if cell.peak_memory_bytes is not None]
    return replace(
        done[0],
        repeats=tuple(repeat for cell in done for repeat in cell.repeats),
        drafted_per_position=summed([cell.drafted_per_position for cell in done]),
        accepted_per_step=summed([cell.accepted_per_step for cell in done]),
        step=StepTimes(*map(median_of, zip(*(cell.step.parts for cell in done), strict=True))),
        peak_memory_bytes=max(peaks, default=None),
        lossless=_worst([cell.lossless for cell in done]),
    )


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    """One that failed, else one that found a tie, else one that was checked."""
    return min(verdicts, key=lambda v: (v.ok is not False, v.identical is not False, not v.checked))
