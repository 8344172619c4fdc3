"""Workloads to the token rows of a batch: every row another instance of exactly fitting length."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.engine.errors import ConfigError
from magicdec.engine.request import Request
from magicdec.engine.text.framing import make_frame
from magicdec.engine.text.rows import RowProgress
from magicdec.engine.text.tokenizer import Tokenizer
from magicdec.engine.text.tokenizing import tokenize
from magicdec.engine.text.workloads.workload import Workload


def generated_rows(
    workloads: Sequence[Workload],
    tokenizer: Tokenizer,
    *,
    context: int | None,
    batch: int,
    prompt: str | None = None,
    raw: bool = False,
    progress: RowProgress | None = None,
) -> list[Request]:
    """`batch` rows, or one per workload when there are more; workloads take turns.

    A row has at most `context` tokens, everything included, and less than one unit of filling
    fewer. `prompt` and `raw`: see `make_frame`. Raises ConfigError when the context is missing
    or too small.
    """
    if context is None:
        raise ConfigError(f"{workloads[0].name} fills any length; say which with --context N")
    frame = make_frame(tokenizer, prompt, raw)
    room = context - len(frame)

    def tokens(text: str) -> list[int]:
        return tokenize(tokenizer, frame.indent + text, before=frame.before)

    count = max(batch, len(workloads))
    requests = []
    for row in range(count):
        turn, which = divmod(row, len(workloads))
        workload = workloads[which]
        instance = workload.instance(turn, lambda text: len(tokens(text)), room, context)
        ids = frame.head + tuple(tokens(instance.text)) + frame.tail
        requests.append(Request(document=f"{workload.name}#{turn}", tokens=ids, row=row))
        if progress is not None:
            progress(workload.name, row + 1, count)
    return requests
