"""Text to tokens and back: a thin layer over the `tokenizers` library.

transformers takes seconds to import, so it is used only where it adds something: a chat template,
or a tokenizer that has no tokenizer.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenizers import Tokenizer as Backend

from magicdec.engine.errors import ModelError


@dataclass(slots=True)
class Tokenizer:
    """A model's tokenizer.

    `bos_id` is prepended to raw documents when the model was trained with it, else None.
    `special_text` gives bos_token, eos_token, ... to the chat template.
    """

    backend: Backend
    bos_id: int | None = None
    chat_template: str | None = None
    special_text: dict[str, Any] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS; special tokens written in the text are recognised."""
        with tokenizing():
            ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        with tokenizing():
            text: str = self.backend.decode(list(ids), skip_special_tokens=not keep_special)
        return text


@contextmanager
def tokenizing(fault: str = "the model's tokenizer cannot be used") -> Iterator[None]:
    """Turns what the library raises, bare exceptions and Rust's panics, into a ModelError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, ModelError):
        raise
    except BaseException as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{fault} ({why}); copy or download it again") from None


Take = Literal["head", "tail"]

PIECE = 65_536  # characters
_NEAR = 64  # characters on each side that decide about a cut
_TRIES = 64

# In the order they are tried. The patterns in use glue line ends and spaces to what precedes or
# follows them, but none glues a line end to a letter or digit, or a word to a space behind it.
_LINE_START = re.compile(r"(?<=\S\n)(?=[^\W_])")
_BEFORE_SPACE = re.compile(r"(?<=\S)(?= [^\W_])")


def tokenize(
    tokenizer: Tokenizer,
    text: str,
    *,
    before: str = "",
    limit: int | None = None,
    take: Take = "head",
    progress: Callable[[int, int], None] | None = None,
    piece: int = PIECE,
) -> list[int]:
    """Tokens of `text`, or its first or last `limit` tokens.

    `before` is text that precedes it and whose tokens are not returned. `progress` is called
    after each piece with (done, total): characters, or tokens when there is a limit; its last
    call has done = total. It may raise to cancel.

    A piece has at most `piece` characters. Where half a piece offers no clean cut (the same
    letter repeated 40,000 times), it is cut anyway, and a token or two may differ there.
    """
    start = len(before[-_NEAR:])
    text = before[-_NEAR:] + text
    total = len(text) - start if limit is None else limit
    spans = _from_start if take == "head" else _from_end
    parts: list[list[int]] = []
    characters = tokens = 0
    for begin, end in spans(tokenizer, text, start, piece):
        parts.append(_encode_span(tokenizer, text, begin, end))
        characters += end - begin
        tokens += len(parts[-1])
        if progress is not None:
            complete = characters == len(text) - start
            done = characters if limit is None else tokens
            progress(total if complete else min(done, total), total)
        if limit is not None and tokens >= limit:
            break
    if take == "tail":
        parts.reverse()
    found = [token for part in parts for token in part]
    if limit is None:
        return found
    return found[:limit] if take == "head" else found[max(0, len(found) - limit) :]


def _from_start(
    tokenizer: Tokenizer, text: str, start: int, piece: int
) -> Iterator[tuple[int, int]]:
    while len(text) - start > piece:
        cut = _find_cut(tokenizer, text, start + piece // 2, start + piece)
        yield start, cut
        start = cut
    if start < len(text):
        yield start, len(text)


def _from_end(tokenizer: Tokenizer, text: str, start: int, piece: int) -> Iterator[tuple[int, int]]:
    end = len(text)
    while end - start > piece:
        cut = _find_cut(tokenizer, text, end - piece, end - piece // 2)
        yield cut, end
        end = cut
    if start < end:
        yield start, end


def _find_cut(tokenizer: Tokenizer, text: str, low: int, high: int) -> int:
    """The best place in [low, high] to cut: a clean one, else `high`."""
    for pattern in (_LINE_START, _BEFORE_SPACE):
        places = [match.start() for match in pattern.finditer(text, low, high + 1)]
        for cut in places[: -_TRIES - 1 : -1]:
            if _is_clean(tokenizer, text, cut):
                return cut
    for cut in range(high, max(low, high - _TRIES), -1):
        if _is_clean(tokenizer, text, cut):
            return cut
    return high


def _is_clean(tokenizer: Tokenizer, text: str, cut: int) -> bool:
    return _continuation(tokenizer, text[max(0, cut - _NEAR) : cut], text[cut : cut + _NEAR]) != []


def _encode_span(tokenizer: Tokenizer, text: str, begin: int, end: int) -> list[int]:
    """Tokens of text[begin:end] in its place. A line end starts most things afresh, so it stands
    in for what precedes a cut that is not clean."""
    span = text[begin:end]
    if begin == 0:
        return tokenizer.encode(span)
    return (
        _continuation(tokenizer, text[max(0, begin - _NEAR) : begin], span)
        or _continuation(tokenizer, "\n", span)
        or tokenizer.encode(span)
    )


def _continuation(tokenizer: Tokenizer, near: str, text: str) -> list[int]:
    """Tokens of `text` behind `near`; [] when no token ends between them."""
    known = tokenizer.encode(near)
    both = tokenizer.encode(near + text)
    return both[len(known) :] if both[: len(known)] == known else []
