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
from magicdec.kernels.cachedir import cache_root, elsewhere, kept_text
from magicdec.profiles.calibrated import (
    BYTES,
    FINGERPRINT,
    LATER,
    Accepted,
    Calibration,
    Fingerprint,
    Residuals,
    Selection,
)
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.shapes import ModelShape
from magicdec.profiles.costs.strict_toml import Fields
from magicdec.profiles.replacing import replacing

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
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path}: not valid JSON ({reason}); delete it and {AGAIN}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ConfigError(f"{path}: no calibration of schema {SCHEMA}; delete it and {AGAIN}")
    try:
        return _calibration(Fields(str(path), data))
    except ConfigError as error:
        raise ConfigError(f"{error}; delete it and {AGAIN}") from None


def _differences(calibration: Calibration, current: Fingerprint) -> int:
    return sum(calibration.fingerprint.get(key) != value for key, value in current.items())


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _calibration(top: Fields) -> Calibration:
    top.only({field.name for field in dataclasses.fields(Calibration)} | {"schema"})
    return Calibration(
        created=top.text("created"),
        fingerprint=_fingerprint(top.table("fingerprint")),
        model=_model(top.table("model")),
        hardware=_hardware(top.table("hardware")),
        selections=tuple(_selection(item) for item in _items(top, "selections")),
        acceptances=tuple(_accepted(item) for item in _items(top, "acceptances")),
        residuals=tuple(_residuals(item) for item in _items(top, "residuals")),
    )


def _items(top: Fields, key: str) -> list[Fields]:
    return top.tables(key) if top.data.get(key) != [] else []


def _names(kind: Any) -> dict[str, None]:
    """Field names, in order."""
    return {field.name: None for field in dataclasses.fields(kind)}


def _fingerprint(table: Fields) -> Fingerprint:
    table.only(set(FINGERPRINT))
    found: dict[str, str | int] = {}
    for key in FINGERPRINT:
        if key in LATER and key not in table.data:
            continue
        number = isinstance(table.data.get(key), int)
        found[key] = table.count(key) if number else table.text(key)
    for key in ("dtype", "kv_dtype"):
        if found[key] not in BYTES:
            raise ConfigError(f"{table.where}: {key!r} must be one of {', '.join(BYTES)}")
    return found


def _model(table: Fields) -> ModelShape:
    table.only(set(_names(ModelShape)))
    others = ("name", "tied", "source")
    sizes = {name: table.count(name) for name in _names(ModelShape) if name not in others}
    return ModelShape(
        name=table.text("name"), **sizes, tied=table.flag("tied", False),
        source=table.text("source", ""),
    )  # fmt: skip


def _hardware(table: Fields) -> Hardware:
    table.only(set(_names(Hardware)))
    sheet = table.table("device").only(set(_names(Device)))
    rates = {
        key: sheet.number(key, low=0, above=True) for key in ("memory_bytes", "bandwidth", "flops")
    }
    kinds = table.table("by_weights")
    return Hardware(
        Device(sheet.text("name"), **rates, source=sheet.text("source", "")),
        count=table.count("count", 1),
        constants=_constants(table.table("constants")),
        by_weights={kind: _constants(kinds.table(kind)) for kind in kinds.data},
        provenance=table.text("provenance", ""),
    )


def _constants(table: Fields) -> Constants:
    table.only(set(_names(Constants)))
    values = {}
    for name in _names(Constants):
        if name.endswith("_efficiency"):
            values[name] = table.number(name, low=0, high=1, above=True)
        else:
            values[name] = table.number(name, low=1 if name == "overlap" else 0)
    return Constants(**values)


def _selection(table: Fields) -> Selection:
    table.only(set(_names(Selection)))
    seconds = {name: table.number(name, low=0) for name in ("fixed_s", "token_s")}
    return Selection(table.text("selector"), **seconds)


def _accepted(table: Fields) -> Accepted:
    table.only(set(_names(Accepted)))
    rates = table.data.get("rates")
    if not isinstance(rates, list) or not rates:
        raise ConfigError(f"{table.where}: 'rates' must be a list of numbers, got {rates!r}")
    numbered = Fields(table.where, {f"rates {i}": rate for i, rate in enumerate(rates, 1)})
    return Accepted(
        table.text("selector"), table.count("budget"), table.text("weights"),
        table.count("drafted"), tuple(numbered.number(k, low=0, high=1) for k in numbered.data),
    )  # fmt: skip


def _residuals(table: Fields) -> Residuals:
    table.only(set(_names(Residuals)))
    return Residuals(
        table.text("kind"), table.count("passes"), table.number("median", low=0),
        table.number("p90", low=0), table.number("bias", low=-1),
    )  # fmt: skip
