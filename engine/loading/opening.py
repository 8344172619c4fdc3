"""The way in: a model name of any kind to an opened model."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.aliases import ALIASES
from magicdec.engine.loading.checkpoint import Checkpoint, Progress, silent
from magicdec.engine.loading.converted import open_entry, open_gguf
from magicdec.engine.loading.files import check_file, user_path
from magicdec.engine.loading.folder import open_folder
from magicdec.engine.loading.hub import fetch, is_hub_id
from magicdec.engine.loading.weights import PICKLES, refuse_pickle


def open_checkpoint(name: str, progress: Progress = silent) -> Checkpoint:
    """Opens the model that `name` means: an alias, a local folder, a .gguf file or a hub id.

    What exists on disk wins over a hub id of the same spelling. `progress` hears of downloads and
    conversions, which happen on the first use only. Raises ModelError with one line to act on.
    """
    if name in ALIASES:
        alias = ALIASES[name]
        build = partial(alias.build, progress=progress)
        return open_entry(name, alias.entry, alias.cache_source, build, progress)
    path = user_path(name)
    check_file(path)
    if path.is_dir():
        return open_folder(name, path)
    if path.is_file():
        return _open_file(name, path, progress)
    if is_hub_id(name) and path.suffix.lower() != ".gguf":
        return open_folder(name, fetch(name, progress))
    raise ModelError(
        f"no model {name!r}: it is no alias ({', '.join(ALIASES)}), no folder, no .gguf file and "
        "no Hugging Face id of the form org/name; check the spelling"
    )


def _open_file(name: str, path: Path, progress: Progress) -> Checkpoint:
    if path.suffix.lower() == ".gguf":
        return open_gguf(name, path, progress)
    if any(path.match(pattern) for pattern in PICKLES):
        raise refuse_pickle(path)
    if path.suffix == ".safetensors":
        raise ModelError(f"{path} is one file of a model; give its folder: {path.parent}")
    raise ModelError(f"{path} is no model file; give a model folder or a .gguf file")
