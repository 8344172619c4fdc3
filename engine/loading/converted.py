"""Opening GGUF files through the cache of converted models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers.pre_tokenizers import ByteLevel

from magicdec.engine.errors import ModelError
from magicdec.engine.loading import cache
from magicdec.engine.loading.checkpoint import Checkpoint, Progress
from magicdec.engine.loading.end_of_turn import all_ends
from magicdec.engine.loading.files import read_json
from magicdec.engine.loading.tokenizer_files import read_tokenizer
from magicdec.engine.loading.weights import open_weights
from magicdec.engine.model.spec import ModelSpec


def open_gguf(name: str, file: Path, progress: Progress) -> Checkpoint:
    """Opens GGUF `file`, converting it when it is new or has changed. Raises ModelError."""

    def build(folder: Path) -> None:
        from magicdec.engine.loading.gguf_file import convert

        convert(file, folder, progress)

    path = file.resolve()
    status = path.stat()
    place = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    source = {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return open_entry(name, cache.models_folder() / f"{path.stem}-{place}", source, build, progress)


def open_entry(
    name: str,
    entry: Path,
    source: cache.Source,
    build: Callable[[Path], None],
    progress: Progress,
) -> Checkpoint:
    """Opens `entry`, building it when it is absent or from another source, or does not open."""

    def say(what: str) -> None:
        progress(what, None)

    cache.ensure(entry, source, build, say)
    try:
        return _open(name, entry)
    except ModelError:  # the manifest fits, but the large file's header does not
        cache.rebuild(entry, source, build, say, unless=lambda: _opens(name, entry))
        return _open(name, entry)


def _opens(name: str, entry: Path) -> bool:
    try:
        _open(name, entry)
    except ModelError:
        return False
    return True


def _open(name: str, entry: Path) -> Checkpoint:
    spec = ModelSpec.from_json(read_json(entry / cache.SPEC))
    weights = open_weights(entry, spec)
    tokenizer = read_tokenizer(entry, spec.vocab_size)
    # Not when it is converted: entries of earlier versions have the named ids only.
    ends = all_ends(spec.eos_ids, partial(_token_of_file, tokenizer.backend))
    return Checkpoint(
        name=name,
        spec=replace(spec, eos_ids=ends),
        weights=weights,
        tokenizer=tokenizer,
        check=cache.check(entry),
    )


def _token_of_file(backend: Backend, text: str) -> int | None:
    """The token's id in the file: the conversion adds tokens that the file has not, and spells
    those beyond a byte-level vocabulary's alphabet in that alphabet."""
    known = backend.get_vocab_size(with_added_tokens=False)
    spelled = "".join(part for part, _ in _IN_BYTES.pre_tokenize_str(text))
    ids = (backend.token_to_id(text), backend.token_to_id(spelled))
    return next((id for id in ids if id is not None and id < known), None)


_IN_BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
