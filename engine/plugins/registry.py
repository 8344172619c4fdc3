"""Finds a plug-in by name: a built-in file, an entry point, or `package.module:Class`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Generic, TypeVar

from magicdec.engine.errors import ConfigError, PluginError
from magicdec.engine.plugins.contained import Contained
from magicdec.engine.untrusted import brief

T = TypeVar("T")

ENTRY = re.compile(r"[\w.]+:[\w.]+")


def is_ours(kind: type) -> bool:
    """Whether this package defines the class: what others define is held to its contract."""
    return kind.__module__.partition(".")[0] == "magicdec"


@functools.cache
def installed_plugins(group: str) -> EntryPoints:
    """Read once: it opens a file of every installed package, and the app asks at every key."""
    return entry_points(group=group)


class Registry(Generic[T]):
    """Subclasses of `base`: one per module of `package`, plus entry points of `group`.

    A built-in needs no registration: `selectors/snapkv.py` is found as "snapkv" because the file
    is there and defines one subclass. Nothing is imported before it is asked for.

    guard: makes of a class that is not this package's the one that is instantiated.
    """

    def __init__(
        self, base: type[T], package: str, group: str, guard: Callable[[type[T]], type[T]]
    ) -> None:
        self.base, self.package, self.group, self.guard = base, package, group, guard

    def names(self) -> list[str]:
        """Built-in names first, then installed ones, each sorted."""
        folder = importlib.import_module(self.package)
        builtin = sorted(m.name for m in pkgutil.iter_modules(folder.__path__) if m.name != "base")
        installed = sorted({e.name for e in installed_plugins(self.group)} - set(builtin))
        return builtin + installed

    def load(self, name: str) -> type[T]:
        """The class called `name`. Raises ConfigError when there is none."""
        kind = self.base.__name__
        if ":" in name:
            return self._imported(name, EntryPoint(name, name, self.group))
        if name not in self.names():
            raise ConfigError(
                f"no {kind} is called {name!r}; choose from {', '.join(self.names())}, "
                "or give package.module:Class"
            )
        for entry in installed_plugins(self.group).select(name=name):
            return self._imported(name, entry)
        module = importlib.import_module(f"{self.package}.{name}")
        own = [
            c
            for c in vars(module).values()
            if isinstance(c, type) and issubclass(c, self.base) and c.__module__ == module.__name__
        ]
        assert len(own) == 1, f"{module.__name__} must define exactly one {kind}, found {own}"
        return own[0]

    def _imported(self, name: str, entry: EntryPoint) -> type[T]:
        kind = self.base.__name__
        if not ENTRY.fullmatch(entry.value):
            raise ConfigError(f"cannot load {kind} {name!r}; give package.module:Class")
        try:
            with Contained(f"cannot load {kind} {name!r}"):
                found = entry.load()
        except PluginError as failed:  # whatever a stranger's module raises while it is imported
            module = isinstance(failed.__cause__, ImportError)
            hint = "; is its folder in PYTHONPATH?" if module else ""
            raise ConfigError(f"{failed}{hint}") from failed.__cause__
        with Contained(f"cannot load {kind} {name!r}"):  # a metaclass may answer, too
            if not (isinstance(found, type) and issubclass(found, self.base)):
                raise ConfigError(f"{name!r} is not a {kind} subclass")
            if inspect.isabstract(found):
                missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
                raise ConfigError(f"{name!r} does not define {missing}")
        return found

    def create(self, name: str, options: Mapping[str, object] | None = None) -> T:
        """An instance with `options` as its dataclass fields; strings are converted to their type.

        Raises ConfigError for an unknown option or a value that does not fit, never drops one;
        PluginError for a class that fails in another way.
        """
        cls = self.load(name)
        with Contained(f"{name} cannot be made"):
            return self._made(cls if is_ours(cls) else self.guard(cls), name, options)

    def _made(self, cls: type[T], name: str, options: Mapping[str, object] | None) -> T:
        known = {f.name: f for f in option_fields(cls)}
        types = typing.get_type_hints(cls)
        values: dict[str, object] = {}
        for key, value in (options or {}).items():
            if key not in known:
                listing = ", ".join(known) or "none"
                raise ConfigError(f"{name} has no option {key!r}; its options: {listing}")
            values[key] = _convert(name, key, value, types[key])
        return cls(**values)


def option_fields(cls: type) -> list[dataclasses.Field[object]]:
    """The options of a plug-in class: its dataclass fields."""
    return list(dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else []


def _convert(owner: str, key: str, value: object, kind: type) -> object:
    if not isinstance(value, str) or kind is str:
        return value
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        return kind(value)
    except (KeyError, ValueError, TypeError) as error:  # TypeError: `int | None` makes nothing
        wanted = getattr(kind, "__name__", str(kind))
        raise ConfigError(f"{owner}: {key} must be {wanted}, got {brief(value, 60)}") from error
