"""Appends cells to a profile file: what kills a sweep costs at most the cell at hand."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from magicdec.engine.draft_spec import who_is
from magicdec.engine.errors import ConfigError
from magicdec.profiles.calibration.calibration import FINGERPRINT, LATER, brief
from magicdec.profiles.files.locking import lock
from magicdec.profiles.recorded.conditions import different
from magicdec.profiles.recorded.encode import cell_to_json, header_to_json
from magicdec.profiles.recorded.header import Header, Scalar, Source
from magicdec.profiles.recorded.reader import WRITERS, read_profile
from magicdec.profiles.recorded.schema import OLDER, SCHEMA, Cell, CellKey, Profile


def cut_torn_line(path: Path) -> None:
    """Removes what follows the last line that is whole, and gives that one its line end."""
    data = path.read_bytes()
    body = data.rstrip()
    last = body[body.rfind(b"\n") + 1 :]
    try:
        json.loads(last)
        keep = body + b"\n"
    except ValueError:
        keep = body[: len(body) - len(last)]
    if keep != data:
        with path.open("r+b") as file:
            if data.startswith(keep):
                file.truncate(len(keep))
            else:
                file.seek(len(body))
                file.write(b"\n")
                file.truncate()
            os.fsync(file.fileno())


MOST_HEADER = 2**20  # bytes
_BEGINNING = re.compile(rb'\{"schema":"magicdec\.profile/\d*("|$)')
_WORDS = {"kv_dtype": "KV dtype", "documents": "text", "max_new_tokens": "number of new tokens"}


class ProfileWriter:
    """A profile file under way. An existing one is continued when it measures the same thing.

    `finished` are the settings that need not be measured again; a failed one may be tried anew,
    its later line then counts. One writer at a time: the file is locked until it is closed.

    Raises ConfigError where the path holds something else, a profile of another model, workload,
    precision or machine, or one that somebody is writing; OSError when it cannot be written.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.finished: set[CellKey] = set()
        self.failed: set[CellKey] = set()
        self.unnamed = ""  # what a file that is continued does not say, see `unnamed`
        self._drafts: dict[str, str] = {}  # identities of draft models, by name
        self._file: BinaryIO = path.open("ab")
        try:
            if not lock(self._file):
                raise ConfigError(
                    f"{path} is being written by another process; wait for it, or give another file"
                )
            self._begin(header)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, header: Header) -> None:
        if self.path.stat().st_size:
            if not _is_torn_header(self.path):
                self._resume(header)
                return
            self._file.truncate(0)
        self._append(header_to_json(header))

    def append(self, cell: Cell) -> None:
        """On disk when this returns."""
        self._append(cell_to_json(cell))
        done, other = self.finished, self.failed
        if cell.status == "failed":
            done, other = other, done
        done.add(cell.key)
        other.discard(cell.key)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> ProfileWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, value: dict[str, Any]) -> None:
        line = json.dumps(value, allow_nan=False, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _resume(self, header: Header) -> None:
        profile = read_profile(self.path)
        self._same_subject(profile, header)
        cut_torn_line(self.path)
        self._renew_schema()
        for cell in profile.cells:
            (self.finished if cell.status == "ok" else self.failed).add(cell.key)
            if cell.draft_identity is not None:
                self._drafts[cell.key.draft] = cell.draft_identity
        self.unnamed = unnamed(profile, header)

    def _same_subject(self, profile: Profile, header: Header) -> None:
        for name in ("model", "dtype", "kv_dtype", "documents", "max_new_tokens"):
            before, now = getattr(profile.header, name), getattr(header, name)
            if before != now and not _same_content(name, profile.header, header):
                raise ConfigError(
                    f"{self.path} records another {_WORDS.get(name, name)} ({_shown(before)}, now "
                    f"{_shown(now)}); give another file"
                )
        before, now = profile.header.identity, header.identity
        if None not in (before, now) and before != now:
            raise ConfigError(
                f"{self.path} records another model of the name {header.model} (weights "
                f"{brief('identity', before)}, now {brief('identity', now)}); give another file"
            )
        if elsewhere := other_machine(profile.header.environment, header.environment):
            raise ConfigError(
                f"{self.path} was measured elsewhere ({elsewhere}); give another file"
            )
        if other := different(profile.header, header):
            raise ConfigError(
                f"{self.path} was measured with other settings ({other}); give another file"
            )

    def same_drafts(self, identities: Mapping[str, str]) -> None:
        """Raises ConfigError where one of these draft models, by the name that cells have for it,
        is another one than that of the cells that are there."""
        for name, now in identities.items():
            before = self._drafts.get(stored := who_is(name).stored, now)
            if before != now:
                raise ConfigError(
                    f"{self.path} records another draft model of the name {stored} "
                    f"(weights {before[:8]}, now {now[:8]}); give another file"
                )

    def _renew_schema(self) -> None:
        """Lines of this version follow: a header of an older one is made to say so. Only the
        version's digit changes, so that nothing moves."""
        with self.path.open("r+b") as file:
            begin = file.readline()
            for older in OLDER:
                place = begin.find(f'"{older}"'.encode())
                if place >= 0:
                    file.seek(place + 1)
                    file.write(SCHEMA.encode())


def _same_content(name: str, before: Header, now: Header) -> bool:
    """Whether a model or a text is known to be the same under another name."""
    if name == "model":
        return before.identity is not None and before.identity == now.identity
    if name == "documents":
        known = [[source.sha256 for source in header.documents] for header in (before, now)]
        return None not in known[0] and known[0] == known[1]
    return False


def check_continuable(path: Path) -> None:
    """Raises ConfigError for a file that no profile can be continued in, whatever it measures."""
    if not path.exists() or not path.stat().st_size or _is_torn_header(path):
        return
    try:
        read_profile(path)
    except ConfigError as error:
        said, advice = str(error), "give another file"
        reason = said.removesuffix(f"; {WRITERS}")  # advice to those who read
        raise ConfigError(f"{reason}; {advice if reason != said else f'or {advice}'}") from None


def _is_torn_header(path: Path) -> bool:
    """A run that was killed in its first write: the file begins as ours and has no end."""
    with path.open("rb") as file:
        begin = file.read(MOST_HEADER)
    if len(begin) == MOST_HEADER or b"\n" in begin or not _BEGINNING.match(begin):
        return False
    try:
        json.loads(begin)
    except ValueError:
        return True
    return False


def _shown(value: object) -> str:
    """Documents by name and the beginning of their digest: the name may be the same."""
    if not isinstance(value, tuple):
        return f"{value!r:.60}"
    names = (
        source.name + (f" {source.sha256[:8]}" if source.sha256 else "")
        for source in value
        if isinstance(source, Source)
    )
    return f"{', '.join(names):.60}"


def unnamed(profile: Profile, now: Header) -> str:
    """What a file of an earlier version does not say of what it measured, in words, so that nobody
    can tell whether it is the same now; empty when it says all."""
    before = profile.header
    found = [
        FINGERPRINT[key] for key in LATER
        if now.environment.get(key) is not None and before.environment.get(key) is None
    ]  # fmt: skip
    if any(c.draft_identity is None and c.key.who.model is not None for c in profile.finished):
        found.append("weights of the draft model")
    if now.conditions and not before.conditions:
        found.append("other settings")
    return " or ".join(found)


def other_machine(before: Mapping[str, Scalar], now: Mapping[str, Scalar]) -> str:
    """What times depend on and is not as it was, "threads 2, now 4"; empty when all is."""
    return ", ".join(
        f"{words} {before[key]}, now {now[key]}"
        for key, words in FINGERPRINT.items()
        if key not in ("model", "identity")
        and key in before
        and before[key] != now.get(key, before[key])
    )
