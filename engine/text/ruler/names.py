"""Workloads by name: `ruler:TASK`, with options behind a question mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO
from urllib.parse import parse_qsl

from magicdec.engine.config import MAX_SEED
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.text.documents import Document, read_document, read_documents
from magicdec.engine.text.ruler.tasks import (
    LONG_FROM,
    biographies,
    common_words,
    common_words_in_short,
    niah_multikey,
)
from magicdec.engine.text.ruler.workload import Workload
from magicdec.engine.untrusted import LONGEST_PATH, clean

PREFIX = "ruler:"
TASKS = ("niah-multikey", "cwe", "qa")
HAYSTACK = "builtin:pydoc"


def read_sources(
    sources: Sequence[str], *, stdin: BinaryIO | None = None
) -> list[Document] | list[Workload]:
    """Documents (see `read_documents`), or workloads: texts made to measure and texts as they
    are do not mix in a batch. Raises ConfigError."""
    generated = [source for source in sources if source.startswith(PREFIX)]
    if not generated:
        return read_documents(sources, stdin=stdin)
    require(
        len(generated) == len(sources),
        f"{generated[0]} cannot be mixed with other documents; give it alone",
    )
    require(
        len(set(generated)) == len(generated),
        "a workload is given twice; --batch makes more rows of it, each another instance",
    )
    return [read_workload(source) for source in sources]


def require_length(sources: Sequence[str], context: int | None) -> None:
    """Workloads fill any length. Raises ConfigError where none is given."""
    for source in sources:
        task = source.removeprefix(PREFIX).partition("?")[0]
        if context is None and source.startswith(PREFIX) and task in TASKS:
            raise ConfigError(f"{source} fills any length; say which with --context N")


def read_workload(source: str) -> Workload:
    """`ruler:cwe`, `ruler:qa?seed=3`, `ruler:niah-multikey?haystack=FILE`. Raises ConfigError."""
    task, _, query = source.removeprefix(PREFIX).partition("?")
    known = ", ".join(PREFIX + name for name in TASKS)
    require(task in TASKS, f"there is no workload {source!r}; choose from {known}")
    options = _options(source, query, ("seed", "haystack") if task == TASKS[0] else ("seed",))
    seed = options.get("seed", "0")
    require(
        seed.isascii() and seed.isdigit() and len(seed) < 20 and int(seed) <= MAX_SEED,
        f"the seed of {source!r} must be in 0..2^63-1",
    )
    name = clean(source, LONGEST_PATH)
    if task == "cwe":
        return Workload(
            name, common_words, int(seed), make_short=common_words_in_short, long_from=LONG_FROM
        )
    if task == "qa":
        return Workload(name, biographies, int(seed))
    haystack = read_document(options.get("haystack", HAYSTACK))
    return Workload(name, niah_multikey(haystack.text), int(seed), haystack.warnings)


def _options(source: str, query: str, known: Sequence[str]) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError(f"the options of {source!r} must be like ?seed=3") from None
    for name, value in pairs:
        require(
            name in known and bool(value),
            f"{source!r}: {name!r} is no option with a value; there is {' and '.join(known)}",
        )
    return dict(pairs)
