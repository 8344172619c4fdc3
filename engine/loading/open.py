"""Opens a model by alias, Hugging Face id, folder or .gguf file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.pre_tokenizers import ByteLevel

from magicdec.engine.errors import ModelError
from magicdec.engine.loading import converted_cache
from magicdec.engine.loading.aliases import ALIASES
from magicdec.engine.loading.announced import as_announced
from magicdec.engine.loading.checkpoint import Checkpoint, Progress, silent
from magicdec.engine.loading.config_values import check_values
from magicdec.engine.loading.end_of_turn import all_ends
from magicdec.engine.loading.files import (
    check_file,
    one_line,
    quiet_hub,
    quiet_transformers,
    read_json,
    read_json_if_any,
    user_path,
)
from magicdec.engine.loading.generation import FILE, asked_of
from magicdec.engine.loading.layer_kinds import check_layers
from magicdec.engine.loading.tokenizer_files import read_tokenizer
from magicdec.engine.loading.weights import PICKLES, open_weights, refuse_pickle
from magicdec.engine.model.spec import READABLE, ModelSpec
from magicdec.engine.untrusted import brief, clean, shown


def open_folder(name: str, folder: Path) -> Checkpoint:
    """Opens `folder`. Raises ModelError for what is missing, damaged or not supported."""
    config = read_json(folder / "config.json")
    spec = read_spec(folder, config)
    weights = open_weights(folder, spec)
    spec, notices = as_announced(folder, config, spec, weights)
    notices += tuple(_idle_ends(folder, spec, config))
    return Checkpoint(
        name=name,
        spec=spec,
        weights=weights,
        tokenizer=read_tokenizer(folder, spec.vocab_size),
        asked=asked_of(folder),
        notices=notices,
    )


def read_spec(folder: Path, config: dict[str, Any]) -> ModelSpec:
    """The specification that `folder`'s config.json, already read, describes."""
    _refuse(folder, config)
    check_values(folder / "config.json", config)
    from transformers import AutoConfig  # over a second to import; the refusals above do not wait

    try:
        with quiet_transformers():
            parsed = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        check_layers(folder, parsed)
        spec = ModelSpec.from_hf(parsed, _eos_ids(folder, config))
    except ModelError:
        raise
    except Exception as error:  # config classes validate with errors of many types
        raise ModelError(
            f"{folder / 'config.json'} cannot be used ({one_line(error)}); "
            "copy or download the model again"
        ) from None
    if (share := spec.rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError(
            f"{folder} rotates only {clean(str(share), 60)} of each head, which is not supported; "
            "choose a model with full rotary embeddings"
        )
    return spec


def _refuse(folder: Path, config: dict[str, Any]) -> None:
    kind = config.get("model_type")
    if kind not in READABLE:
        raise ModelError(
            f"architecture {brief(kind, 60)} in {folder} is not supported; "
            f"choose a model of type {', '.join(READABLE)}"
        )
    causal = config.get("is_causal", True)
    if causal is False:
        raise ModelError(
            f"{folder} sees what follows each token (is_causal is false), so it cannot be decoded "
            "one token after the other; choose a causal model"
        )
    if causal is not True:  # transformers' attention implementations disagree, or fail
        raise ModelError(
            f"{folder / 'config.json'} has is_causal = {brief(causal, 60)} where true or false is "
            "needed; remove it where the model was trained to be causal"
        )
    if (quantized := config.get("quantization_config")) is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise ModelError(
            f"weights in {folder} are quantized ({clean(str(method), 60)}), which is supported "
            "only from .gguf files; choose the unquantized model"
        )
    if (activation := config.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise ModelError(
            f"activation {brief(activation, 60)} in {folder} is not supported; choose a model with "
            "silu"
        )


def _eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """generation_config.json knows best: chat models end a turn with other tokens than a text."""
    for source in (read_json_if_any(folder / FILE), config):
        ids = source.get("eos_token_id")
        if ids is not None:
            found = ids if isinstance(ids, list) else [ids]
            for id in found:
                if type(id) is not int:
                    raise ModelError(
                        f"{folder} has eos_token_id = {brief(ids, 60)} where a token's number or a "
                        "list of them is needed; copy or download the model again"
                    )
            return tuple(found)
    return ()


def _idle_ends(folder: Path, spec: ModelSpec, config: dict[str, Any]) -> Iterator[str]:
    """What the user should know of end-of-text tokens that no row can end with."""
    known = range(spec.vocab_size)
    idle = [id for id in spec.eos_ids if id not in known]
    named = [config.get("eos_token_id"), read_json_if_any(folder / FILE).get("eos_token_id")]
    if not idle and (spec.eos_ids or [] not in named):
        return
    which = f"{shown(idle[0])}, which is no token of its {spec.vocab_size:,}" if idle else "none"
    rest = "" if len(idle) < len(spec.eos_ids) else "; rows end at --max-new-tokens or --stop-token"
    yield f"{folder} names as end of text (eos_token_id) {which}{rest}"


_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.txt"]
_UNWANTED = ["*/*", "consolidated*"]  # other formats of the same weights


def is_hub_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def fetch(name: str, progress: Progress) -> Path:
    """The local folder of hub model `name`; downloads what is missing, works offline when cached.

    Raises ModelError when it cannot be had.
    """
    import huggingface_hub as hub
    from huggingface_hub import errors

    what = f"downloading {name}"
    progress(what, None)
    try:
        with quiet_hub():
            folder = hub.snapshot_download(
                name,
                allow_patterns=_WANTED,
                ignore_patterns=_UNWANTED,
                tqdm_class=_reporter(what, progress),
            )
    except errors.GatedRepoError:
        raise ModelError(
            f"{name} is gated; accept its terms at https://huggingface.co/{name} and log in with "
            "`hf auth login`, or give a local folder"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"{name} does not exist on Hugging Face, or is private; check the id, give a local "
            "folder or an alias of `magicdec models list`"
        ) from None
    # What is left is the network, the disk and the hub's own errors, which share no base class.
    except Exception as error:
        raise ModelError(
            f"{name} cannot be downloaded from Hugging Face ({_cause(error)}) and is not in its "
            "cache; give a local folder or an alias of `magicdec models list`"
        ) from None
    path = Path(folder)
    if not any(path.glob("*.safetensors")):
        raise ModelError(
            f"{name} publishes no safetensors weights at its top level; choose another model, "
            "or download a .gguf file and give its path"
        )
    return path


def _cause(error: BaseException) -> str:
    """The hub wraps the network's error, sometimes twice; the innermost says what happened."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error, limit=120)


def _reporter(what: str, progress: Progress) -> type[Any]:
    """A progress bar that shows nothing and reports the bytes done to `progress`.

    The total grows while files are being opened, so the share may step back in the first second.
    """
    from huggingface_hub.utils import tqdm

    class Reporter(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **(kwargs | {"disable": True}))
            self._counts_bytes = kwargs.get("unit") == "B"  # another bar counts files
            self.total = kwargs.get("total")
            self.n = kwargs.get("initial", 0)

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._counts_bytes and self.total:
                progress(what, min(1.0, self.n / self.total))

    return Reporter


def open_gguf(name: str, file: Path, progress: Progress) -> Checkpoint:
    """Opens GGUF `file`, converting it when it is new or has changed. Raises ModelError."""

    def build(folder: Path) -> None:
        from magicdec.engine.loading.gguf.file import convert

        convert(file, folder, progress)

    path = file.resolve()
    status = path.stat()
    place = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    source = {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return open_entry(
        name, converted_cache.models_folder() / f"{path.stem}-{place}", source, build, progress
    )


def open_entry(
    name: str,
    entry: Path,
    source: converted_cache.Source,
    build: Callable[[Path], None],
    progress: Progress,
) -> Checkpoint:
    """Opens `entry`, building it when it is absent or from another source, or does not open."""

    def say(what: str) -> None:
        progress(what, None)

    converted_cache.ensure(entry, source, build, say)
    try:
        return _open(name, entry)
    except ModelError:  # the manifest fits, but the large file's header does not
        converted_cache.rebuild(entry, source, build, say, unless=lambda: _opens(name, entry))
        return _open(name, entry)


def _opens(name: str, entry: Path) -> bool:
    try:
        _open(name, entry)
    except ModelError:
        return False
    return True


def _open(name: str, entry: Path) -> Checkpoint:
    spec = ModelSpec.from_json(read_json(entry / converted_cache.SPEC))
    weights = open_weights(entry, spec)
    tokenizer = read_tokenizer(entry, spec.vocab_size)
    # Not when it is converted: entries of earlier versions have the named ids only.
    ends = all_ends(spec.eos_ids, partial(_token_of_file, tokenizer.backend))
    return Checkpoint(
        name=name,
        spec=replace(spec, eos_ids=ends),
        weights=weights,
        tokenizer=tokenizer,
        check=converted_cache.check(entry),
    )


def _token_of_file(backend: Backend, text: str) -> int | None:
    """The token's id in the file: the conversion adds tokens that the file has not, and spells
    those beyond a byte-level vocabulary's alphabet in that alphabet."""
    known = backend.get_vocab_size(with_added_tokens=False)
    spelled = "".join(part for part, _ in _IN_BYTES.pre_tokenize_str(text))
    ids = (backend.token_to_id(text), backend.token_to_id(spelled))
    return next((id for id in ids if id is not None and id < known), None)


_IN_BYTES = ByteLevel(add_prefix_space=False, use_regex=False)


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
