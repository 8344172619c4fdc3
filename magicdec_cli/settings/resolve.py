"""Where each setting comes from: flag > MAGICDEC_* > ./magicdec.toml > user file > default."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from magicdec.cli.settings.knob import Knob
from magicdec.cli.settings.knobs import KNOBS, Settings
from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import shown
from magicdec.profiles.files.toml import read_toml


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and for each the flag, variable or file that gave it, or "default"."""

    settings: Settings
    sources: Mapping[str, str]


def config_files() -> tuple[Path, Path]:
    """The project's and the user's file, stronger first; neither needs to exist."""
    return Path("magicdec.toml"), Path(platformdirs.user_config_dir("magicdec")) / "config.toml"


def resolve(
    flags: Mapping[str, Any] | None = None, env: Mapping[str, str] = os.environ
) -> Resolved:
    """The settings in force. `flags` holds what the command line gave, by field name.

    Flag values are text (a list of texts for repeatable ones) or booleans. Raises ConfigError for
    a bad value anywhere, also one that something stronger overrides: a broken file is broken.
    """
    values: dict[str, Any] = {knob.name: knob.default for knob in KNOBS}
    sources = dict.fromkeys(values, "default")
    layers = [(read_file(path), str(path)) for path in reversed(config_files())]
    for found, source in layers:
        values |= found
        sources |= dict.fromkeys(found, source)
    for knob in KNOBS:
        if env.get(knob.env):  # an empty variable counts as unset
            values[knob.name] = _from_env(knob, env[knob.env])
            sources[knob.name] = knob.env
    for knob in KNOBS:
        given = (flags or {}).get(knob.name)
        if given is not None and given != []:
            values[knob.name] = _from_flag(knob, given)
            sources[knob.name] = knob.flag
    return Resolved(Settings(**values | gamma_of(values["gamma"])), sources)


def gamma_of(given: int | str) -> dict[str, Any]:
    """γ and what chooses it, from the number, word or file name that --gamma gave."""
    if isinstance(given, int):
        return {"gamma": given}
    from magicdec.profiles.files.gamma_names import most_of

    return {"gamma": most_of(given), "gamma_policy": given}


def read_file(path: Path) -> dict[str, Any]:
    """The settings a TOML file gives, by field name; empty when there is no file."""
    try:
        path.stat()
    except FileNotFoundError:
        return {}
    except OSError:
        pass  # the reading says why
    data = read_toml(path)
    keys = {knob.key: knob for knob in KNOBS}
    values = {}
    for key, value in data.items():
        if key not in keys:
            near = difflib.get_close_matches(key.replace("_", "-"), keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see `magicdec config show`"
            raise ConfigError(f"{path}: unknown key {shown(key)}; {hint}")
        values[keys[key].name] = keys[key].check(value, f"{path}: {key}")
    return values


def _from_env(knob: Knob, text: str) -> Any:
    if knob.kind != "map":
        return knob.parse(text, knob.env)
    return _merged(knob, text.split(","), knob.env)


def _from_flag(knob: Knob, given: Any) -> Any:
    if knob.kind == "map":
        return _merged(knob, given, knob.flag)
    if knob.kind in ("list", "ids"):
        return tuple(item for text in given for item in knob.parse(text, knob.flag))
    return given if isinstance(given, bool) else knob.parse(given, knob.flag)


def _merged(knob: Knob, pairs: list[str], source: str) -> dict[str, object]:
    merged: dict[str, object] = {}
    for pair in pairs:
        merged |= knob.parse(pair, source)
    return merged
