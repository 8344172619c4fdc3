"""The model that a draft names, opened and held to the target's vocabulary."""

from __future__ import annotations

from collections.abc import Callable

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import who_is
from magicdec.engine.drafters.make import check_layers
from magicdec.engine.errors import ConfigError, ModelError
from magicdec.engine.loading.checkpoint import Checkpoint, Progress
from magicdec.engine.loading.files import user_path
from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.loading.weights import content_of
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.spec import ModelSpec


class DraftModels:
    """Those that a session was asked for: each is opened once, the last one is loaded."""

    def __init__(
        self, target: Checkpoint, load: Callable[[Checkpoint], Decoder], progress: Progress
    ) -> None:
        self._target, self._load, self._progress = target, load, progress
        self._opened: dict[str, Checkpoint] = {}
        self._identities: dict[str, str] = {}  # as they were loaded
        self._loaded: tuple[str, Decoder] | None = None

    def spec(self, config: DecodeConfig) -> ModelSpec | None:
        """The draft model's; None where no other model drafts. Reads no weights.

        Raises ModelError, ConfigError for a draft that cannot be used with the target.
        """
        name, layers = config.who.model, config.who.layers
        if config.gamma > 0 and layers is not None:
            check_layers(self._target.spec, layers)
        if name is None or config.gamma == 0:
            return None
        if name not in self._opened:
            self._opened[name] = open_draft(config.draft, self._target, self._progress)
        return self._opened[name].spec

    def model(self, config: DecodeConfig) -> Decoder | None:
        """The draft model, loaded on first use, and kept until another one is asked for; None
        where no other model drafts. Raises what `spec` raises."""
        name = config.who.model
        if self.spec(config) is None or name is None:
            return None
        if self._loaded is None or self._loaded[0] != name:
            self._loaded = None  # its memory is the next one's
            self._progress("loading draft weights", None)
            self._identities[name] = self._content(name)
            self._loaded = name, self._load(self._opened[name])
        return self._loaded[1]

    def identity(self, config: DecodeConfig) -> str | None:
        """The draft model's, as `Session.identity`; None where no other model drafts. Raises what
        `spec` raises."""
        name = config.who.model
        if self.spec(config) is None or name is None:
            return None
        if self._loaded is not None and self._loaded[0] == name:
            return self._identities[name]
        return self._content(name)  # its files may change until they are read

    def _content(self, name: str) -> str:
        opened = self._opened[name]
        return content_of(opened.spec, opened.weights)

    def opened(self) -> list[Checkpoint]:
        return list(self._opened.values())

    @property
    def nbytes(self) -> int:
        return 0 if self._loaded is None else self._loaded[1].nbytes


def open_draft(asked: str, target: Checkpoint, progress: Progress) -> Checkpoint:
    """asked: a model, or the cascade in which one drafts.

    Raises ModelError for what is no model, ConfigError for one of another vocabulary.
    """
    name = who_is(asked).first
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
