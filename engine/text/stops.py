"""Refuses or explains stops that cannot do what they look like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from magicdec.engine.errors import require
from magicdec.engine.text.tokenizer import Tokenizer
from magicdec.engine.untrusted import clean, shown


def idle_stops(tokenizer: Tokenizer, stops: Sequence[str]) -> Iterator[str]:
    """What the user should know of them, a line each.

    A stop string of nothing but escapes is refused, see `DecodeConfig`; within others they may be
    meant, as in TeX. A special token ends a row where it is the whole string.
    """
    added = tokenizer.backend.get_added_tokens_decoder().values()
    special = [token.content for token in added if token.special and token.content]
    for stop in stops:
        if found := re.search(r"\\[nrt]", stop):
            yield (
                f"stop {clean(stop, 40)} holds a backslash and the letter {found[0][1]}; for a "
                f"line break or tab a shell writes $'{clean(stop, 40)}', a TOML file double quotes"
            )
        if stop in special:
            continue
        if inside := [token for token in special if token in stop]:
            yield (
                f"stop {shown(stop)} is never found: it holds the special token "
                f"{shown(inside[0])}, which no text shows; give that token alone"
            )


def require_stops(tokens: Sequence[int], vocabulary: int) -> None:
    """Raises ConfigError for a stop token that a model of so many tokens never says."""
    for token in tokens:
        require(
            token < vocabulary,
            f"stop-token {token} is beyond the model's vocabulary of {vocabulary:,} tokens; give "
            f"one below {vocabulary}, or a text with --stop",
        )
