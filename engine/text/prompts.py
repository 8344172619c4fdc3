"""Cuts documents into the token rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from magicdec.engine.errors import ConfigError, require
from magicdec.engine.request import Request
from magicdec.engine.text.documents import Document
from magicdec.engine.text.framing import make_frame
from magicdec.engine.text.tokenizer import Take, Tokenizer, tokenize

RowPlan = Literal["staggered", "windows"]
RowProgress = Callable[[str, int, int], None]  # document name, done, total


@dataclass(frozen=True, slots=True)
class _Span:
    """Tokens [start, end) of document number `document`."""

    document: int
    start: int
    end: int


def build_rows(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    *,
    context: int | None = None,
    batch: int = 1,
    take: Take = "head",
    rows: RowPlan = "staggered",
    prompt: str | None = None,
    raw: bool = False,
    progress: RowProgress | None = None,
) -> list[Request]:
    """One request per row: `batch` of them, or one per document when there are more documents.

    `context` is the number of tokens of a row, everything included; None takes documents whole,
    and a document shorter than that gives a shorter row. `take` says from which end.

    Documents take turns. "staggered" gives a document's rows different ends, so that one prefill
    serves them all: each row is 1/32 of the first one shorter than the one before it, or less
    where needed to keep the shortest at half. "windows" gives them separate, adjacent parts,
    counted from the end that `take` names.

    `prompt` and `raw`: see `make_frame`. `progress` is called while a document is tokenised, see
    `tokenize`. Raises ConfigError when the documents cannot fill the rows, or the context cannot
    hold the prompt.
    """
    require(bool(documents), "no document given")
    require(batch >= 1, f"batch must be at least 1, got {batch}")
    require(context is None or context >= 1, f"context must be at least 1, got {context}")
    frame = make_frame(tokenizer, prompt, raw)
    require(
        context is None or context > len(frame),
        f"context {context} leaves no room for the document: prompt, chat template and BOS take "
        f"{len(frame)} tokens; give at least {len(frame) + 1}",
    )
    size = None if context is None else context - len(frame)  # document tokens of a row
    count = max(batch, len(documents))
    needed = size if size is None or rows == "staggered" else size * count
    tokens = [
        tokenize(
            tokenizer,
            frame.indent + document.text,
            before=frame.before,
            limit=needed,
            take=take,
            progress=_named(progress, document.name),
        )
        for document in documents
    ]
    lengths = [len(ids) for ids in tokens]
    for document, length in zip(documents, lengths, strict=True):
        require(length > 0, f"{document.name} has no tokens for this model")
    plan = _stagger(lengths, count) if rows == "staggered" else _windows(lengths, count, size, take)
    return [
        Request(
            document=_label(documents[span.document].name, span, lengths[span.document], take),
            tokens=frame.head + tuple(tokens[span.document][span.start : span.end]) + frame.tail,
            row=row,
        )
        for row, span in enumerate(plan)
    ]


def _named(progress: RowProgress | None, name: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(name, done, total)


def _stagger(lengths: Sequence[int], count: int) -> list[_Span]:
    """Row i is turn i // D of document i % D, for D documents."""
    largest = min(length * len(lengths) + i for i, length in enumerate(lengths))
    require(
        count <= largest,
        f"the shortest of the documents has {min(lengths)} tokens, too few for a batch of "
        f"{count} different rows; lower the batch to {largest} or give a longer document",
    )
    spans = []
    for row in range(count):
        turn, i = divmod(row, len(lengths))
        turns = -(-(count - i) // len(lengths))
        stride = max(1, lengths[i] // max(32, 2 * turns))
        spans.append(_Span(i, 0, lengths[i] - turn * stride))
    return spans


def _windows(lengths: Sequence[int], count: int, size: int | None, take: Take) -> list[_Span]:
    """A document that is shorter than one window still gives one, itself."""
    if size is None:
        require(
            count == len(lengths),
            f"windows for a batch of {count} need a context to know their size; set one",
        )
        return [_Span(i, 0, length) for i, length in enumerate(lengths)]
    turns = [max(1, length // size) for length in lengths]
    order = sorted((turn, i) for i, of_document in enumerate(turns) for turn in range(of_document))
    if len(order) < count:
        raise ConfigError(
            f"the documents hold {len(order)} window{'s' if len(order) > 1 else ''} of {size} "
            f"tokens, too few for a batch of {count}; lower the batch or the context"
        )
    spans = []
    for turn, i in order[:count]:
        near, far = min(turn * size, lengths[i]), min((turn + 1) * size, lengths[i])
        head = take == "head"
        spans.append(_Span(i, near, far) if head else _Span(i, lengths[i] - far, lengths[i] - near))
    return spans


def _label(name: str, span: _Span, length: int, take: Take) -> str:
    """`name` for a document's first row, with a Python slice of its tokens for the others.

    `length` tokens of the document are known, and those from the end that `take` names.
    """
    first = span.start == 0 and span.end == length
    if take == "head":
        start, end = str(span.start or ""), str(span.end)
    else:
        start, end = str(span.start - length), str(span.end - length or "")
    return name if first else f"{name}[{start}:{end}]"
