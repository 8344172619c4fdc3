"""What the engine is asked to continue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One row of a batch: a prompt, complete with BOS, chat template and question.

    `document` is a name to show, such as "dracula.txt" or, for a part of it, "dracula.txt[:3875]"
    (document tokens, written as a Python slice). `row` is the request's index; a row's random
    seed derives from it.
    """

    document: str
    tokens: tuple[int, ...]
    row: int
