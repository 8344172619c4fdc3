"""Documents, or tasks that are generated, to the requests of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.checkpoint import Progress
from magicdec.engine.request import Request
from magicdec.engine.text.documents import Document
from magicdec.engine.text.prompts import RowPlan, build_rows
from magicdec.engine.text.ruler.workload import Workload, generated_rows
from magicdec.engine.text.tokenizer import Take, Tokenizer


def make_requests(
    sources: Sequence[Document] | Sequence[Workload],
    tokenizer: Tokenizer,
    say: Progress,
    *,
    context: int | None,
    batch: int,
    take: Take,
    rows: RowPlan,
    prompt: str | None,
    raw: bool,
) -> list[Request]:
    """Documents, see `build_rows`; workloads, see `generated_rows`. Raises ConfigError."""

    def progress(name: str, done: int, total: int) -> None:
        say(f"tokenising {name}", done / total if total else None)

    workloads = [source for source in sources if isinstance(source, Workload)]
    if workloads:
        return generated_rows(
            workloads, tokenizer, context=context, batch=batch, prompt=prompt, raw=raw,
            progress=progress,
        )  # fmt: skip
    texts = [source for source in sources if isinstance(source, Document)]
    return build_rows(
        texts, tokenizer, context=context, batch=batch, take=take, rows=rows, prompt=prompt,
        raw=raw, progress=progress,
    )  # fmt: skip


def require_known(
    requests: Sequence[Request], tokenizer: Tokenizer, vocab_size: int, model: str
) -> None:
    """Raises ModelError for tokens that the model has no embedding of."""
    most = max(max(request.tokens) for request in requests)
    if most >= vocab_size:
        text = tokenizer.backend.id_to_token(most)
        raise ModelError(
            f"the tokenizer of {model} makes token {most:,} of {text!r:.40}, but the model knows "
            f"{vocab_size:,} tokens; copy the tokenizer files that belong to the model"
        )
