"""Finds the tokens that end a model's turn, in files that name too few of them.

Many GGUF files name only the end of a text, while the model ends its turns with another token. As
llama.cpp does (src/llama-vocab.cpp), tokens are therefore known by their text, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip

#: What stands between the files of a repository: a model that writes one has ended its own.
_BETWEEN_FILES = (
    ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("<|file_sep|>",),
)

#: Where all of these are, the last one ends a part of a turn, not the turn.
_NO_END = (
    ("<|return|>", "<|call|>", "<|end|>"),
    ("<|return|>", "<|calls|>", "<|end|>"),
    ("<|call|>", "<|flush|>", "<|end|>"),
    ("<|calls|>", "<|flush|>", "<|end|>"),
    ("<|tool_response>", "</s>"),
)

_NAMES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_SENTENCEPIECE_EOS = 2  # what llama.cpp takes where such a file names none


def named_ends(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """The ids that a GGUF file's metadata names, as far as it has such tokens."""
    known = range(len(metadata.get("tokenizer.ggml.tokens", ())))
    given = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _NAMES}
    if given["eos"] not in known and metadata.get("tokenizer.ggml.model") == "llama":
        given["eos"] = _SENTENCEPIECE_EOS
    return tuple(dict.fromkeys(id for id in given.values() if id in known and id is not None))


def all_ends(named: Iterable[int], id_of: Callable[[str], int | None]) -> tuple[int, ...]:
    """The named ids, and those of the tokens that end a turn by their text.

    id_of: a token's id by its text, None where the vocabulary has none.
    """
    by_text = [id_of(text) for text in _ENDS]
    for texts in _BETWEEN_FILES:
        by_text.append(next((id for id in map(id_of, texts) if id is not None), None))
    found = dict.fromkeys(id for id in (*named, *by_text) if id is not None)
    for *others, last in _NO_END:
        id = id_of(last)
        if id in found and all(id_of(text) in found for text in others):
            del found[id]
    return tuple(found)
