"""Models and hardware by name: the program's data files, and the user's, which win."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import platformdirs

from magicdec.engine.errors import ConfigError
from magicdec.engine.loading.files import user_path
from magicdec.profiles.costs.hardware import Entry, Hardware, read_hardware
from magicdec.profiles.costs.model import ModelShape, read_config, read_models

T = TypeVar("T")
DATA = Path(__file__).parent / "data"
VERSIONS = {"instruct", "chat", "hf", "base", "meta"}  # words that change no size
COUNT = re.compile(r"\s*(\d+)\s*[x×*]\s*(.+)", re.IGNORECASE)
MAX_COUNT = 4096


def user_folder(kind: str) -> Path:
    """Where the user keeps TOML files of `kind`, "models" or "hardware"; it may not exist."""
    return Path(platformdirs.user_config_dir("magicdec")) / kind


def find_model(name: str) -> ModelShape:
    """The sizes of a model.

    `name` is a name or alias, with or without organisation ("meta-llama/Llama-3.1-8B"), a folder
    with a config.json, or the path of such a file or of a TOML file with one [[model]].
    Raises ConfigError, or ModelError for a damaged config.json.
    """
    path = user_path(name)
    if path.is_dir() and (path / "config.json").is_file():
        return read_config(path / "config.json")
    if path.suffix in (".json", ".toml"):
        _exists(path)
        if path.suffix == ".json":
            return read_config(path)
        return _only(path, read_models(path), "models")[0]
    return _choose(name, _models(), "model", "or give a folder with a config.json")


def find_hardware(name: str) -> Hardware:
    """Devices by name and count: "8xH100", "8×A100-80G", "cpu-avx2", "2x./mine.toml"."""
    match = COUNT.fullmatch(name)
    count, device = (int(match[1][:9]), match[2]) if match else (1, name.strip())
    if not 1 <= count <= MAX_COUNT:
        raise ConfigError(f"{name!r:.60}: the number of devices must be 1 to {MAX_COUNT}")
    return replace(_complete(find_device(device)), count=count)


def find_device(name: str) -> Entry:
    """The catalogue's entry for a kind of device, or the only one of a TOML file."""
    path = user_path(name)
    if path.suffix == ".toml":
        _exists(path)
        return _only(path, read_hardware(path), "kinds of hardware")
    return _choose(name, _hardware(), "hardware", "or give a .toml file")


def list_models() -> list[ModelShape]:
    """Every known model, by name."""
    return _distinct(_models())


def list_hardware() -> list[Hardware]:
    """One device of every known kind, by name."""
    return [_complete(entry) for entry in _distinct(_hardware())]


def _models() -> dict[str, tuple[str, ModelShape]]:
    return _named("models", read_models, lambda model: model.name)


def _hardware() -> dict[str, tuple[str, Entry]]:
    def entries(path: Path) -> list[tuple[Entry, tuple[str, ...]]]:
        return [(entry, entry.aliases) for entry in read_hardware(path)]

    return _named("hardware", entries, lambda entry: entry.hardware.device.name)


def _complete(entry: Entry) -> Hardware:
    """With the constants of the device it borrows them from."""
    if entry.constants_of is None:
        return entry.hardware
    lender = _choose(entry.constants_of, _hardware(), "hardware", "name one in 'constants_of'")
    if lender.constants_of:
        raise ConfigError(
            f"{entry.hardware.device.name} borrows the constants of {entry.constants_of}, "
            "which borrows its own; name the measured one"
        )
    return replace(
        entry.hardware,
        constants=lender.hardware.constants,
        by_weights=lender.hardware.by_weights,
        provenance=f"not fitted; constants of {lender.hardware.device.name}: "
        f"{lender.hardware.provenance}",
    )


def _named(
    kind: str, read: Callable[[Path], list[tuple[T, tuple[str, ...]]]], name: Callable[[T], str]
) -> dict[str, tuple[str, T]]:
    """Items by normalised name; with each its name as written. The user's files come last: an
    item of theirs replaces one of the same name, and that one's aliases."""
    found: dict[str, tuple[str, T]] = {}
    for folder in (DATA / kind, user_folder(kind)):
        for path in sorted(folder.glob("*.toml")):
            for item, aliases in read(path):
                _, replaced = found.get(_normal(name(item)), ("", None))
                for key in [key for key, (_, old) in found.items() if old is replaced]:
                    found[key] = (found[key][0], item)
                found |= {_normal(text): (text, item) for text in (*aliases, name(item))}
    return found


def _choose(name: str, known: Mapping[str, tuple[str, T]], kind: str, otherwise: str) -> T:
    key = _normal(name)
    if key in known:
        return known[key][1]
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    names = [known[match][0] for match in near] or sorted({text for text, _ in known.values()})
    raise ConfigError(f"no {kind} is called {name!r}; known are {', '.join(names)}, {otherwise}")


def _normal(name: str) -> str:
    """Only letters and digits count, and neither an organisation nor a version that keeps sizes."""
    words = re.split(r"[-_\s]+", name.strip().rpartition("/")[2].casefold())
    return re.sub(r"[^a-z0-9]", "", "".join(word for word in words if word not in VERSIONS))


def _distinct(known: Mapping[str, tuple[str, T]]) -> list[T]:
    items: list[T] = []
    for _, item in sorted(known.values(), key=lambda pair: pair[0].casefold()):
        if item not in items:
            items.append(item)
    return items


def _only(path: Path, found: list[T], what: str) -> T:
    if len(found) != 1:
        raise ConfigError(f"{path}: holds {len(found)} {what}; give the name of one")
    return found[0]


def _exists(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
