"""The formats by name, each loaded when it is used."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Protocol, cast

from magicdec.profiles.export.drafts import expressed
from magicdec.profiles.export.notes import plan_notes
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import EngineOptions, Export

FORMATS = ("vllm", "vllm-experimental", "vllm-sparse", "sglang", "tensorrt-llm", "llama.cpp",
           "aiconfigurator", "magicdec")  # fmt: skip


class Format(Protocol):
    """A module of this package."""

    def render(self, plan: Plan, options: EngineOptions) -> Export: ...

    def check(self, text: str) -> list[str]:
        """What the engine reads otherwise than it is written, or not at all. Raises ConfigError
        for a text that it would refuse."""


def format_named(name: str) -> Format:
    assert name in FORMATS
    module = name.replace("-", "_").replace(".", "_")
    return cast(Format, importlib.import_module(f"magicdec.profiles.export.{module}"))


def export(plan: Plan, name: str, options: EngineOptions) -> Export:
    """Renders, checks what was rendered, and adds what the numbers are worth."""
    format = format_named(name)
    unsaid = expressed(plan, name, options)
    if plan.drafter.kind == "model" and options.draft_model is None:
        options = replace(options, draft_model=plan.drafter.draft)
    made = format.render(plan, options)
    remarks = format.check(made.text)
    return Export(made.text, (*plan_notes(plan), *unsaid, *made.notes, *remarks))
