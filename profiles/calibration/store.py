"""Calibrations as JSON files in the user's cache, one for each fingerprint. Torch-free."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import plain_words, shown
from magicdec.kernels.cachedir import cache_root, elsewhere, kept_text
from magicdec.profiles.calibration.calibration import (
    BYTES,
    FINGERPRINT,
    LATER,
    Calibration,
    Fingerprint,
)
from magicdec.profiles.costs.hardware import Constants
from magicdec.profiles.files.files import replacing
from magicdec.profiles.files.typed import decoded

SCHEMA = "magicdec.calibration/1"
LARGEST = 1_000_000  # bytes of a file
USUAL = 8192  # bytes of one, or more than most
AGAIN = "run `magicdec calibrate` again"


def calibrations_folder() -> Path:
    """Where calibrations are kept; it may not exist yet."""
    return cache_root() / "calibrations"


def calibration_path(fingerprint: Fingerprint) -> Path:
    text = json.dumps(dict(fingerprint), sort_keys=True)
    name = re.sub(r"[^a-z0-9.]+", "-", str(fingerprint["model"]).lower()).strip("-.")[-40:]
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return calibrations_folder() / f"{name}-{key}.json"


def save_calibration(calibration: Calibration) -> Path:
    """Writes its file in one step and returns the path. Raises ConfigError."""
    path = calibration_path(calibration.fingerprint)
    text = json.dumps(as_record(calibration), indent=1, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as made:
            made.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}; {elsewhere(error)}"
        ) from error
    return path


def unstorable() -> str:
    """Why no calibration could be stored now, in a few words; empty when one could. Asked by
    writing, since permissions alone do not tell."""
    folder = calibrations_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * USUAL)
            file.flush()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def as_record(calibration: Calibration) -> dict[str, Any]:
    """The document of a file, JSON-ready."""
    data = dataclasses.asdict(dataclasses.replace(calibration, fingerprint={}))
    data["fingerprint"] = dict(calibration.fingerprint)
    if math.isinf(calibration.hardware.device.link):
        del data["hardware"]["device"]["link"]
    return {"schema": SCHEMA, **data}


def load_calibration(
    model: str | None = None, current: Fingerprint | None = None
) -> Calibration | None:
    """The calibration of `model` (None: of any) that is nearest to `current`: the one that holds
    for it if there is one, else the one with the fewest differences; the newest of several.

    None when there is none. Ask `stale_because` before use. Raises ConfigError for a file that
    cannot be read as a calibration.
    """
    folder = calibrations_folder()
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    found = [c for c in map(read_calibration, paths) if model in (None, c.fingerprint["model"])]
    return max(found, key=lambda c: (-_differences(c, current or {}), c.created), default=None)


def known_here() -> Fingerprint:
    """What of this machine's fingerprint can be known without torch."""
    from magicdec.engine.environment import cpu_name, machine

    return {
        "magicdec": version("magicdec"), "torch": version("torch"), "device_name": cpu_name(),
        "machine": machine(),
    }  # fmt: skip


def read_calibration(path: Path) -> Calibration:
    """Raises ConfigError naming the file, what is wrong with it, and what to do."""
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path}: larger than any calibration; delete it and {AGAIN}")
        data = json.loads(kept_text(path), parse_constant=_refuse)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; {AGAIN}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = " ".join(plain_words(error).split())
        raise ConfigError(f"{path}: not valid JSON ({reason}); delete it and {AGAIN}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ConfigError(f"{path}: no calibration of schema {SCHEMA}; delete it and {AGAIN}")
    try:
        del data["schema"]
        calibration = decoded(Calibration, data, str(path), whole=(Calibration, Constants))
        _check_fingerprint(calibration.fingerprint, f"{path}: fingerprint")
    except ConfigError as error:
        raise ConfigError(f"{error}; delete it and {AGAIN}") from None
    return calibration


def _differences(calibration: Calibration, current: Fingerprint) -> int:
    return sum(calibration.fingerprint.get(key) != value for key, value in current.items())


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check_fingerprint(found: Fingerprint, where: str) -> None:
    for key in FINGERPRINT:
        if key not in found and key not in LATER:
            raise ConfigError(f"{where}: {key!r} is missing")
    for key in found:
        if key not in FINGERPRINT:
            raise ConfigError(f"{where}: unknown key {shown(key)}")
    for key in ("dtype", "kv_dtype"):
        if found[key] not in BYTES:
            raise ConfigError(f"{where}: {key!r} must be one of {', '.join(BYTES)}")
