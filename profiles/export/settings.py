"""What every export format is given, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import shown

REPLAY = "replays the measured acceptance: for timing only, the generated text is worthless"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What the profile cannot know of the engine it is exported to."""

    draft_model: str | None = None
    replay: bool = False  # the acceptance, too, for timing runs: their text is worthless
    lower_keys: bool = False  # TensorRT-LLM: schedule keys are lower bounds

    def drafter(self, format: str) -> str:
        """The draft model, for a format that needs one. Raises ConfigError when there is none."""
        if not self.draft_model:
            raise ConfigError(
                f"{format} drafts with a model of its own; name it with --draft-model MODEL"
            )
        return self.draft_model


@dataclass(frozen=True, slots=True)
class Export:
    """`text` is what the engine reads, and nothing else; `notes` are for people."""

    text: str
    notes: tuple[str, ...] = ()


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def wrong(what: str, why: str) -> ConfigError:
    """An exported text that its engine would refuse."""
    return ConfigError(f"not valid for {what}: {why}")


def check_rates(rates: Sequence[float], engine: str) -> None:
    for rate in rates:
        if not 0 <= rate <= 1:
            raise wrong(engine, f"acceptance rates lie in 0..1, got {shown(rate)}")
    if list(rates) != sorted(rates, reverse=True):
        raise wrong(engine, "acceptance rates must not rise from one position to the next")
