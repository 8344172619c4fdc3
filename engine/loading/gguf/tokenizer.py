"""The tokenizer inside a GGUF file, through transformers' conversion and what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, normalizers, pre_tokenizers, processors

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.files import one_line, quiet_panics, quiet_transformers
from magicdec.engine.loading.tokenizer_files import CONFIG, TOKENIZER
from magicdec.engine.text.tokenizer import tokenizing

# `tokenizer.ggml.pre` names how a text is cut before merging (llama.cpp, src/llama-vocab.cpp).
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
_GPT2 = ("gpt-2",)
_WHOLE_WORDS = ("llama3", "llama-v3", "llama-bpe", "tekken")  # a word in the vocabulary stays whole
_COMPOSED = ("qwen2",)  # Qwen composes accents first (NFC)
_SPECIAL = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}


def write_tokenizer(file: Path, metadata: Mapping[str, Any], folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json of GGUF `file` into `folder`.

    Raises ModelError for a kind of tokenizer that would cut texts differently from the model's.
    """
    backend = _converted(file)
    kind = metadata.get("tokenizer.ggml.model")
    pre = metadata.get("tokenizer.ggml.pre")
    _correct(backend, metadata)
    config = _special_tokens(metadata)
    # Where the file does not say, llama.cpp goes by the kind of vocabulary.
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or pre in _WHOLE_WORDS)
    bos = config.get("bos_token") if adds_bos else None
    backend.post_processor = processors.TemplateProcessing(
        single=["$A"] if bos is None else [bos, "$A"],
        special_tokens=[] if bos is None else [(bos, backend.token_to_id(bos))],
    )
    backend.save(str(folder / TOKENIZER))
    if template := metadata.get("tokenizer.chat_template"):
        config["chat_template"] = template
    (folder / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


def _special_tokens(metadata: Mapping[str, Any]) -> dict[str, str]:
    tokens = metadata["tokenizer.ggml.tokens"]
    found = {}
    for theirs, ours in _SPECIAL.items():
        token = metadata.get(f"tokenizer.ggml.{theirs}_token_id")
        if token is not None and 0 <= token < len(tokens):
            found[f"{ours}_token"] = tokens[token]
    return found


def _converted(file: Path) -> Backend:
    # Not AutoTokenizer: it would read the whole file once more to learn the architecture.
    from transformers import PreTrainedTokenizerFast

    try:
        with quiet_transformers(), tokenizing(), quiet_panics():
            loaded = PreTrainedTokenizerFast.from_pretrained(
                file.parent, gguf_file=file.name, local_files_only=True
            )
            return Backend.from_str(loaded.backend_tokenizer.to_str())
    except Exception as error:  # the conversion raises what its parts raise
        raise ModelError(
            f"the tokenizer of {file} cannot be converted ({one_line(error)}); "
            "choose the model's safetensors"
        ) from None


def _correct(backend: Backend, metadata: Mapping[str, Any]) -> None:
    """Puts right what the conversion leaves out without saying so."""
    if metadata.get("tokenizer.ggml.model") == "gpt2":
        _correct_byte_level(backend, metadata.get("tokenizer.ggml.pre"))
    elif metadata.get("tokenizer.ggml.add_space_prefix") is False:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )


def _correct_byte_level(backend: Backend, pre: str | None) -> None:
    if pre in _WHOLE_WORDS:
        backend.model.ignore_merges = True
    if pre in _COMPOSED:
        backend.normalizer = normalizers.NFC()
    # A plain ByteLevel cuts as GPT-2 did: the conversion's answer to a `pre` it does not know.
    if not isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel) or pre in _GPT2:
        return
    if pre not in _SINGLE_DIGITS:
        raise ModelError(
            f"the GGUF file cuts text by rules named {pre!r}, which are not known here; "
            "choose the model's safetensors"
        )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
