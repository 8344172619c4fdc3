"""The model that a draft names, opened and held to the target's vocabulary."""

from __future__ import annotations

from magicdec.engine.config import UNDER_SELF
from magicdec.engine.errors import ConfigError, ModelError
from magicdec.engine.loading.checkpoint import Checkpoint, Progress
from magicdec.engine.loading.files import user_path
from magicdec.engine.loading.opening import open_checkpoint


def open_draft(asked: str, target: Checkpoint, progress: Progress) -> Checkpoint:
    """asked: a model, or the cascade in which one drafts.

    Raises ModelError for what is no model, ConfigError for one of another vocabulary.
    """
    name = asked.removesuffix(UNDER_SELF)
    try:
        draft = open_checkpoint(name, progress)
    except ModelError as error:
        raise ModelError(_no_model(asked, name, error)) from error
    require_same_vocabulary(target, draft)
    return draft


def _no_model(asked: str, name: str, error: ModelError) -> str:
    if asked == name:
        return (
            f"draft {name!r} is not self, lookup, layers:N or a cascade such as lookup+self, and "
            f"cannot be opened as a model: {error}"
        )
    named = (
        f"; {asked} is a folder, but a draft whose name ends in +self is a cascade: give the "
        "folder another name or a link to it"
    )
    return (
        f"draft {asked!r}: {name!r} is not lookup or layers:N, and cannot be opened as a model to "
        f"draft for the self-draft: {error}{named if user_path(asked).exists() else ''}"
    )


def require_same_vocabulary(target: Checkpoint, draft: Checkpoint) -> None:
    """Raises ConfigError unless every token id means the same text in both.

    Embeddings may differ in size: some families pad them, and padding means nothing.
    """
    ours, theirs = (c.tokenizer.backend.get_vocab() for c in (target, draft))
    if ours == theirs:
        return
    different = {token for token, _ in ours.items() ^ theirs.items()}
    example = min(different, key=lambda t: (ours.get(t, theirs.get(t)), t))
    has = [f"{v[example]}" if example in v else "missing" for v in (ours, theirs)]
    raise ConfigError(
        f"draft {draft.name} has another vocabulary than {target.name}: {len(theirs):,} and "
        f"{len(ours):,} tokens, {example!r:.40} is {has[1]} and {has[0]}; choose a smaller model "
        "of the same family"
    )
