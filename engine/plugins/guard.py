"""Selectors from outside the package: every call is named where it fails, every answer checked.

The guard is a subclass, so that whatever is asked of a selector's class still holds, and the
package's own selectors pay nothing. Torch has no read-only tensors: what chooses once gets copies,
what chooses again and again is watched (see `watched_index` and `key_seal`).
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from magicdec.engine.errors import PluginError
from magicdec.engine.plugins.contained import selector_failures
from magicdec.engine.selectors.base import DynamicSelector, KVSelector, Search

if TYPE_CHECKING:
    from torch import Tensor

    from magicdec.engine.indexes.base import KeyIndex, KeyShape


@functools.cache
def guarded(kind: type[KVSelector]) -> type[KVSelector]:
    """A subclass of the same name that trusts `kind` with nothing."""
    members: dict[str, object] = {
        "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__,
        "__init__": _init(kind), "select": _select(kind),
    }  # fmt: skip
    for name, check in CHECKS.items():
        own = inspect.getattr_static(kind, name, None)
        if isinstance(own, property) and own.fget is not None:
            members[name] = property(_checked(name, own.fget, check))
        elif inspect.isfunction(own):
            members[name] = _checked(name, own, check)
    if issubclass(kind, DynamicSelector):
        members["index"] = _index(kind)
    return types.new_class(kind.__name__, (kind,), exec_body=lambda space: space.update(members))


def _init(kind: type[KVSelector]) -> Callable[..., None]:
    original = kind.__init__

    def made(self: KVSelector, *given: object, **named: object) -> None:
        with selector_failures(kind.__name__, "__init__"):
            original(self, *given, **named)
        for name in NUMBERS:  # those that are no properties: fields, or the class's own
            if not isinstance(inspect.getattr_static(kind, name, 0), property):
                value = getattr(self, name, 0)
                _hold(self, name, value, _count(self, value))

    return made


def _select(kind: type[KVSelector]) -> Callable[..., Tensor]:
    original = kind.select

    def select(self: KVSelector, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        with selector_failures(kind.__name__, "select"):
            return original(self, keys.clone(), queries.clone(), budget)

    return select


def _index(kind: type[DynamicSelector]) -> Callable[..., KeyIndex]:
    original = kind.index

    def index(self: DynamicSelector, shape: KeyShape) -> KeyIndex:
        from magicdec.engine.indexes.base import KeyIndex
        from magicdec.engine.plugins.watched_index import WatchedIndex

        with selector_failures(kind.__name__, "index"):
            made: object = original(self, shape)
        if not isinstance(made, KeyIndex):
            raise PluginError(
                f"selector {kind.__name__}: index is {type(made).__name__}, not a KeyIndex"
            )
        return WatchedIndex(made, kind.__name__)

    return index


Check = Callable[..., str]


def _checked(name: str, original: Callable[..., Any], check: Check) -> Callable[..., Any]:
    def call(self: KVSelector, *given: Any, **named: Any) -> Any:
        with selector_failures(type(self).__name__, name):
            found = original(self, *given, **named)
        _hold(self, name, found, check(self, found, *given, *named.values()))
        return found

    return call


def _hold(selector: KVSelector, name: str, found: object, wanted: str) -> None:
    if wanted:
        raise PluginError(
            f"selector {type(selector).__name__}: {name} is {found!r:.60}, not {wanted}"
        )


def _count(selector: KVSelector, found: object) -> str:
    return "" if _whole(found, 0) else "an integer of 0 or more"


def _ring(selector: KVSelector, found: object, budget: int) -> str:
    return "" if found is None or _whole(found, 1, budget) else f"None or in 1..{budget}"


def _width(selector: DynamicSelector, found: object, length: int, budget: int) -> str:
    if length <= budget:
        return "" if _whole(found, length, length) else f"{length}, all of a row within the budget"
    most = min(length, selector.most(budget))
    return "" if _whole(found, 1, most) else f"in 1..{most}"


def _most(selector: DynamicSelector, found: object, budget: int) -> str:
    return "" if _whole(found, 1) else "an integer of 1 or more"


def _search(selector: KVSelector, found: object, *sizes: int) -> str:
    parts = astuple(found) if isinstance(found, Search) else (math.nan,)
    numbers = all(isinstance(part, int | float) and 0 <= part < math.inf for part in parts)
    return "" if numbers else "a Search of shares of 0 or more"


def _whole(found: object, low: int, high: float = math.inf) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and low <= found <= high


#: By name, what the value of a property or method has to be; empty when it is that.
NUMBERS = ("observed", "dense", "refresh")
CHECKS: dict[str, Check] = {
    **dict.fromkeys(NUMBERS, _count),
    "ring": _ring, "search": _search, "width": _width, "most": _most,
}  # fmt: skip
