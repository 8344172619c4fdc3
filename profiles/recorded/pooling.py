"""Runs of one setting as samples of one cell, and cells of one subject as one profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from magicdec.profiles.acceptance.rates import summed
from magicdec.profiles.calibration.calibration import FINGERPRINT
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.recorded.header import Header
from magicdec.profiles.recorded.schema import Cell, CellKey, Profile, Verdict, median_of

Subject = tuple[object, ...]


def subject_of(header: Header) -> Subject:
    """Equal for what may stand in one file: the same model, machine, documents and conditions."""
    environment = tuple((key, header.environment.get(key)) for key in FINGERPRINT)
    documents = tuple(sorted((s.name, s.sha256 or "") for s in header.documents))
    conditions = tuple(sorted((key, repr(value)) for key, value in header.conditions.items()))
    return (
        header.model, header.dtype, header.kv_dtype, documents, header.max_new_tokens, conditions,
        environment,
    )  # fmt: skip


@dataclass(slots=True)
class _Place:
    """What may stand in one file: of one subject, and of each draft's name one model."""

    subject: Subject
    header: Header
    drafts: dict[str, str | None] = field(default_factory=dict)
    cells: dict[CellKey, list[Cell]] = field(default_factory=dict)


@dataclass(slots=True)
class Shelf:
    """Cells that come one after the other, each put where its like are."""

    places: list[_Place] = field(default_factory=list)

    def put(self, header: Header, cell: Cell) -> tuple[int, Cell | None, Cell]:
        """The number of its place, and what that holds of its setting: before, and now."""
        number, place = self._place_for(header, cell)
        like = place.cells.setdefault(cell.key, [])
        before = pooled(like) if like else None
        like.append(cell)
        return number, before, pooled(like)

    def _place_for(self, header: Header, cell: Cell) -> tuple[int, _Place]:
        subject, draft, identity = subject_of(header), cell.key.draft, cell.draft_identity
        for number, place in enumerate(self.places):
            if place.subject == subject and place.drafts.setdefault(draft, identity) == identity:
                return number, place
        self.places.append(_Place(subject, header, {draft: identity}))
        return len(self.places) - 1, self.places[-1]


def by_subject(profiles: Iterable[Profile]) -> list[Profile]:
    """One profile for each place that their cells take, in the order in which they first came."""
    shelf = Shelf()
    for profile in profiles:
        for cell in profile.cells:
            shelf.put(profile.header, cell)
    return [
        Profile(place.header, tuple(map(pooled, place.cells.values()))) for place in shelf.places
    ]


def pooled(cells: Sequence[Cell]) -> Cell:
    """Runs of one setting as one cell. What failed says nothing beside what did not."""
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
