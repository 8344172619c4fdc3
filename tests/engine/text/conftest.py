"""Small trained tokenizers of every family that the supported models use."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from magicdec.engine.text.tokenizer import Tokenizer

_CORPUS = (
    "The old house stood at the end of the street; nobody had lived there since 1947.",
    "It's said they're waiting, they've been waiting, and we'll be waiting too, don't you think?",
    "def main(args):\n    for item in args:\n        print(item, end='')\n    return 0\n",
    "Größe, café, naïve — 日本語のテキスト、中文。 Смотри! 😀😀 αβγ",
    "12345 and 678,90.12 (see p. 34)\n\nA new paragraph.\r\n\tAnd a tab.   Three spaces.\n",
    "the other one, the other two, another house, another street, the end of the end",
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = ["<|im_start|>", "<|im_end|>"]


def _train(backend: Backend, alphabet: list[str], vocab_size: int = 640) -> None:
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=alphabet,
        special_tokens=_SPECIAL,
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS * 3, trainer)


def _byte_level(split: pre_tokenizers.PreTokenizer) -> Backend:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = split
    backend.decoder = decoders.ByteLevel()
    _train(backend, pre_tokenizers.ByteLevel.alphabet())
    return backend


def _gpt2() -> Backend:
    return _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def _smollm() -> Backend:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return _byte_level(
        pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    )


def _llama3() -> Backend:
    split = pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated")
    rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _byte_level(pre_tokenizers.Sequence([split, rest]))


def _metaspace() -> Backend:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace()
    _train(backend, [chr(c) for c in range(32, 127)])
    return backend


def _llama2() -> Backend:
    """Merges over the whole text, a space marker before it, single bytes for the unknown."""
    bytes_ = {f"<0x{byte:02X}>": byte for byte in range(256)}
    trained = Backend(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "removed"), pre_tokenizers.Metaspace()]
    )
    _train(trained, [chr(c) for c in range(33, 127)], 400)
    state = json.loads(trained.model.__getstate__())
    vocab = bytes_ | {token: 256 + i for i, (token, _) in enumerate(sorted(state["vocab"].items()))}
    merges = [tuple(merge) for merge in state["merges"]]
    backend = Backend(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(_SPECIAL)
    return backend


_KINDS: dict[str, Callable[[], Backend]] = {
    "gpt2": _gpt2,
    "smollm": _smollm,
    "llama3": _llama3,
    "metaspace": _metaspace,
    "llama2": _llama2,
}


@cache
def _tokenizer(kind: str) -> Tokenizer:
    return Tokenizer(_KINDS[kind]())


@pytest.fixture(scope="session", params=sorted(_KINDS))
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A small trained tokenizer of each family that the supported models use."""
    return _tokenizer(request.param)


@pytest.fixture(scope="session")
def tokenizers_by_kind() -> Callable[[str], Tokenizer]:
    return _tokenizer
