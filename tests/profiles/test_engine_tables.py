"""Our checks judge as the engines' own code did: thousands of mutated configurations.

tests/data holds the verdicts, with the version they are of and how they were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.errors import ConfigError
from magicdec.profiles.export.registry import format_named

DATA = Path(__file__).parents[1] / "data"
UNDECIDED = "?"


def verdicts(name: str) -> Iterator[tuple[Any, bool]]:
    """Configurations, and whether the engine took them."""
    table = json.loads((DATA / name).read_text())
    for field, columns in table["taken"].items():
        if isinstance(columns, str):  # alike for every base
            columns = [columns] * len(table["bases"])
        for base, taken in zip(table["bases"].values(), columns, strict=True):
            for value, mark in zip(table["values"], taken, strict=True):
                if mark != UNDECIDED:
                    yield base | {field: value}, mark == "1"
    yield from table["cases"]


def as_file(format: str, config: Any) -> str:
    if format == "tensorrt-llm":  # YAML, which JSON is, too
        return f"speculative_config: {config if isinstance(config, str) else json.dumps(config)}"
    return json.dumps(config)


def passes(format: str, config: Any) -> bool:
    try:
        format_named(format).check(as_file(format, config))
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1
        return False
    return True


@pytest.mark.parametrize(
    ("format", "name", "least"),
    [
        ("vllm", "vllm-0.33.0.json", 8000),
        ("sglang", "sglang-0.5.23.json", 100),
        ("tensorrt-llm", "tensorrt-llm-main.json", 250),
    ],
)
def test_verdicts_are_the_engines(format, name, least):
    found = list(verdicts(name))
    assert len(found) > least and {taken for _, taken in found} == {True, False}
    assert [config for config, taken in found if passes(format, config) != taken] == []
