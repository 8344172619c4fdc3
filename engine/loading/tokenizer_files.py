"""A folder's tokenizer: tokenizer.json directly, transformers only where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.files import (
    LARGE,
    SMALL,
    check_file,
    one_line,
    quiet_panics,
    quiet_transformers,
    read_json_if_any,
)
from magicdec.engine.text.tokenizer import Tokenizer, tokenizing
from magicdec.engine.untrusted import shown

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
_SOURCES = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")


def read_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """Raises ModelError without a tokenizer, or when it knows more than `vocab_size` tokens."""
    if (folder / TOKENIZER).exists():
        tokenizer = _read_fast(folder)
    elif any((folder / source).exists() for source in _SOURCES):
        tokenizer = _convert(folder)
    else:
        raise ModelError(
            f"{folder} has no {TOKENIZER}; copy the tokenizer files of the model into it"
        )
    # Tokens added later may lie beyond the embedding in published models, but the vocabulary
    # itself may not: that is another model's tokenizer.
    # Ids beyond it are refused where a text has one, see `Session.requests`.
    known = tokenizer.backend.get_vocab_size(with_added_tokens=False)
    if known > vocab_size:
        raise ModelError(
            f"the tokenizer in {folder} has {known} tokens but the model only {vocab_size}; "
            "copy the tokenizer files that belong to the model"
        )
    tokenizer.backend.no_truncation()  # some files carry a training run's limits
    tokenizer.backend.no_padding()
    return tokenizer


def _read_fast(folder: Path) -> Tokenizer:
    check_file(folder / TOKENIZER, LARGE)
    with tokenizing(f"{folder / TOKENIZER} cannot be read"), quiet_panics():
        backend = Backend.from_file(str(folder / TOKENIZER))
        bos_id = _bos_id(backend)
    config = read_json_if_any(folder / CONFIG)
    special = _texts(read_json_if_any(folder / "special_tokens_map.json")) | _texts(config)
    return Tokenizer(
        backend=backend,
        bos_id=bos_id,
        chat_template=_chat_template(folder, config),
        special_text=special,
    )


def _texts(config: dict[str, Any]) -> dict[str, Any]:
    """bos_token, eos_token, ... as plain text; older files wrap each in an object."""
    texts = {}
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            texts[key] = text
    return texts


def _bos_id(backend: Backend) -> int | None:
    """The token that the tokenizer itself puts before a text, if it does.

    As in transformers, what tokenizer.json does counts; an `add_bos_token` beside it does not.
    """
    plain = backend.encode("a", add_special_tokens=False).ids
    dressed = backend.encode("a", add_special_tokens=True).ids
    return dressed[0] if dressed[:1] != plain[:1] else None


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        check_file(file, SMALL)
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{file} cannot be read ({one_line(error)}); copy or download it again, or delete "
                "it to do without a chat template"
            ) from None
    template = config.get("chat_template")
    if isinstance(template, list):  # several named templates
        named = [entry for entry in template if isinstance(entry, dict)]
        template = next((e.get("template") for e in named if e.get("name") == "default"), template)
    if template is None or isinstance(template, str):
        return template
    raise ModelError(
        f"{folder / CONFIG} has a chat_template that is {shown(template)}, neither a text nor a "
        "list with one named default; copy or download it again"
    )


def _convert(folder: Path) -> Tokenizer:
    from transformers import AutoTokenizer

    for path in folder.iterdir():  # which of them it reads is the library's secret
        if path.suffix in (".json", ".txt", ".model", ".jinja"):
            check_file(path, LARGE)
    try:
        with quiet_transformers(), tokenizing(), quiet_panics():
            loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            backend = Backend.from_str(loaded.backend_tokenizer.to_str())
    except Exception as error:  # any of transformers' converters, each with its own errors
        raise ModelError(
            f"{folder} has no {TOKENIZER} and its other tokenizer files cannot be converted "
            f"({one_line(error)}); use a copy of the model that has a {TOKENIZER}"
        ) from None
    special = dict(loaded.special_tokens_map)
    template = loaded.chat_template
    return Tokenizer(
        backend=backend,
        bos_id=_bos_id(backend),
        chat_template=template if isinstance(template, str) else None,
        special_text=special,
    )
