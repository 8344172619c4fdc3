"""Tokenising in pieces equals tokenising the whole, for every tokenizer family."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from magicdec.engine.text.tokenizer import Tokenizer, tokenize

PROSE = (
    "The old house stood at the end of the street; nobody had lived there since 1947.\n"
    "They've been waiting, and we'll be waiting too -- don't you think?\n\n"
    '"Größe," said the other one. (It\'s naïve: 日本語のテキスト, 😀.)\n'
    "  - 12345 and 678,90.12\n\tif x == 3:\n        return  0\n"
)

_words = st.one_of(
    st.text("theousdnr", min_size=1, max_size=7),
    st.text("0123456789", min_size=1, max_size=5),
    st.sampled_from(
        ["don't", "(see", "end.", "x=1;", "--", "naïve", "日本語", "😀😀", "a,b", "'s"]
    ),
)
_gaps = st.sampled_from([" "] * 12 + ["\n"] * 4 + ["\n\n", "  ", "\n  ", "\t", " \n"])
texts = st.lists(st.tuples(_words, _gaps), min_size=1, max_size=60).map(
    lambda pairs: "".join(word + gap for word, gap in pairs)
)
no_deadline = settings(deadline=None)


@no_deadline
@given(text=texts, piece=st.integers(24, 80))
def test_pieces_join_to_the_tokens_of_the_whole(any_tokenizer, text, piece):
    whole = any_tokenizer.encode(text)
    assert tokenize(any_tokenizer, text, piece=piece) == whole
    assert tokenize(any_tokenizer, text, piece=piece, take="tail") == whole


@no_deadline
@given(text=texts, piece=st.integers(24, 80), limit=st.integers(1, 120))
def test_limits_take_the_ends_of_the_whole(any_tokenizer, text, piece, limit):
    whole = any_tokenizer.encode(text)
    assert tokenize(any_tokenizer, text, piece=piece, limit=limit) == whole[:limit]
    assert tokenize(any_tokenizer, text, piece=piece, limit=limit, take="tail") == whole[-limit:]


@no_deadline
@given(before=texts, text=texts)
def test_text_that_follows_other_text(any_tokenizer, before, text):
    before, text = before.rstrip() + "\n", text.strip()
    whole = any_tokenizer.encode(before + text)
    known = any_tokenizer.encode(before)
    if whole[: len(known)] == known:
        assert tokenize(any_tokenizer, text, before=before, piece=40) == whole[len(known) :]


@pytest.mark.parametrize("piece", [40, 64, 100, 1000])
def test_prose_code_and_symbols(any_tokenizer, piece):
    text = PROSE * 8
    assert tokenize(any_tokenizer, text, piece=piece) == any_tokenizer.encode(text)


def test_special_tokens_are_not_cut(any_tokenizer):
    text = "the end<|im_end|>\n<|im_start|>the other one " * 40
    assert tokenize(any_tokenizer, text, piece=32) == any_tokenizer.encode(text)


@pytest.mark.parametrize(
    "text",
    [
        "theotherhouse" * 60,
        "日本語のテキスト、中文。" * 40,
        "0123456789" * 70,
        "a" * 700,
        "x" + " " * 700 + "y",
        "=" * 333 + "-" * 333,
        "é😀" * 300,
    ],
    ids=["letters", "cjk", "digits", "one-letter", "spaces", "punctuation", "multi-byte"],
)
@pytest.mark.parametrize("take", ["head", "tail"])
def test_unbroken_text_is_cut_without_changing_it(any_tokenizer, text, take):
    tokens = tokenize(any_tokenizer, text, piece=100, take=take)
    whole = any_tokenizer.encode(text)
    assert any_tokenizer.decode(tokens) == any_tokenizer.decode(whole)
    assert abs(len(tokens) - len(whole)) <= len(whole) // 10


def test_unknown_characters_may_have_no_token():
    backend = Backend(models.BPE({"a": 0}, []))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    assert tokenize(Tokenizer(backend), "☃ ☃ a ☃" * 20, piece=8) == [0] * 20


class CountingTokenizer(Tokenizer):
    """Counts the characters it is asked to encode."""

    characters = 0

    def encode(self, text: str) -> list[int]:
        CountingTokenizer.characters += len(text)
        return super().encode(text)


@pytest.fixture
def counting(any_tokenizer):
    CountingTokenizer.characters = 0
    return CountingTokenizer(any_tokenizer.backend)


@pytest.mark.parametrize("text", [PROSE * 1000, "theotherhouse" * 20_000], ids=["prose", "line"])
def test_work_is_linear(counting, text):
    tokenize(counting, text)
    assert counting.characters < 1.2 * len(text)


@pytest.mark.parametrize("take", ["head", "tail"])
def test_a_limit_leaves_the_rest_of_the_text_alone(counting, take):
    tokenize(counting, PROSE * 2000, limit=500, take=take)
    assert counting.characters < 100_000


@pytest.mark.parametrize("take", ["head", "tail"])
def test_progress_in_characters(any_tokenizer, take):
    calls: list[tuple[int, int]] = []
    text = PROSE * 10
    tokenize(any_tokenizer, text, piece=200, take=take, progress=lambda *call: calls.append(call))
    assert len(calls) > 10
    assert all(a[0] < b[0] for a, b in pairwise(calls))
    assert {total for _, total in calls} == {len(text)}
    assert calls[-1] == (len(text), len(text))


@pytest.mark.parametrize(("limit", "calls_at_least"), [(100, 2), (10**6, 10)])
def test_progress_in_tokens(any_tokenizer, limit, calls_at_least):
    calls: list[tuple[int, int]] = []
    tokenize(
        any_tokenizer,
        PROSE * 10,
        limit=limit,
        piece=100,
        progress=lambda *call: calls.append(call),
    )
    assert len(calls) >= calls_at_least
    assert all(0 < done <= total == limit for done, total in calls)
    assert calls[-1] == (limit, limit)


def test_progress_may_cancel(any_tokenizer):
    def cancel(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize(any_tokenizer, PROSE, progress=cancel)
