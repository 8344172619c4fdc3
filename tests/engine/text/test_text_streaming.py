"""Text comes out as soon as it is certain, whole characters only, and ends at a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from magicdec.engine.text.streaming import TextStream
from magicdec.engine.text.tokenizer import Tokenizer

no_deadline = settings(deadline=None)
PIECES = ("ab", "bc", "abc", "cab", " a", "a b", "\n\n", "é", "€", "😀", "the end", "a€")


def bytes_of(text: str) -> list[int]:
    return list(text.encode())


@pytest.fixture(scope="module")
def byte_tokenizer() -> Tokenizer:
    """Token n is the byte n; after them come PIECES, so that a text has many spellings."""
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def spell(data: bytes) -> str:
        return "".join(symbols[byte] for byte in data)

    symbols = _byte_symbols(alphabet)
    vocab = {spell(bytes([byte])): byte for byte in range(256)}
    for i, piece in enumerate(PIECES):
        vocab[spell(piece.encode())] = 256 + i
    backend = Backend(models.BPE(vocab, []))
    backend.pre_tokenizer = alphabet
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    return Tokenizer(backend)


def _byte_symbols(alphabet: pre_tokenizers.PreTokenizer) -> list[str]:
    """GPT-2's printable symbol for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    symbols = [chr(b) if b in printable else chr(next(others)) for b in range(256)]
    assert sorted(symbols) == sorted(alphabet.alphabet())
    return symbols


def run(tokenizer: Tokenizer, tokens: list[int], *stop: str) -> tuple[TextStream, list[str]]:
    stream = TextStream(tokenizer, stop)
    pieces = [stream.push(token) for token in tokens]
    pieces.append(stream.finish())
    assert "".join(pieces) == stream.text
    return stream, pieces


def test_a_character_waits_for_its_last_byte(byte_tokenizer):
    _, pieces = run(byte_tokenizer, bytes_of("a€😀b"))
    assert pieces == ["a", "", "", "€", "", "", "", "😀", "b", ""]


def test_what_precedes_an_incomplete_character_is_not_held(byte_tokenizer):
    stream = TextStream(byte_tokenizer)
    assert [stream.push(token) for token in [256, 0xE2, 0x82]] == ["ab", "", ""]
    assert stream.text == "ab"
    assert stream.finish() == "\ufffd"
    assert stream.text == "ab\ufffd"


def test_special_tokens_have_no_text(byte_tokenizer):
    eos = byte_tokenizer.backend.token_to_id("<eos>")
    _, pieces = run(byte_tokenizer, [eos, 0xE2, eos, 0x82, 0xAC, eos, 97])
    assert pieces == ["", "", "", "", "€", "", "a", ""]


@no_deadline
@given(tokens=st.lists(st.integers(0, 255 + len(PIECES)), max_size=60))
def test_any_tokens_give_the_text_of_decoding_them_at_once(byte_tokenizer, tokens):
    stream, _ = run(byte_tokenizer, tokens)
    assert stream.text == byte_tokenizer.decode(tokens)


@no_deadline
@given(tokens=st.lists(st.sampled_from([0xF0, 0x9F, 0x98, 0x80, 0xE2, 0xFF]), max_size=120))
def test_long_runs_of_broken_characters(byte_tokenizer, tokens):
    stream, _ = run(byte_tokenizer, tokens)
    assert stream.text == byte_tokenizer.decode(tokens)


@no_deadline
@given(text=st.text(max_size=60), skip=st.integers(0, 2))
def test_every_family_streams_what_it_decodes(any_tokenizer, text, skip):
    tokens = any_tokenizer.encode("the other house " + text)[skip:]
    stream, _ = run(any_tokenizer, tokens)
    assert stream.text == any_tokenizer.decode(tokens)


def test_work_per_token_is_constant(byte_tokenizer):
    decoded: list[int] = []

    class Counting(Tokenizer):
        def decode(self, ids, *, keep_special=False):
            decoded.append(len(ids))
            return super().decode(ids, keep_special=keep_special)

    eos = byte_tokenizer.backend.token_to_id("<eos>")
    tokens = (bytes_of("the € end") + [eos] * 50 + [0xFF] * 100) * 20
    run(Counting(byte_tokenizer.backend), tokens, "the end is near")
    assert max(decoded) < 50
    assert len(decoded) < 3 * len(tokens)


@pytest.mark.parametrize("block", range(1, 12))
def test_a_stop_string_split_over_tokens_at_every_offset(byte_tokenizer, block):
    """The stop string begins at every position of a block of `block` tokens."""
    for offset in range(block):
        tokens = bytes_of("x" * offset + "STOP" + "y" * 20)
        stream = TextStream(byte_tokenizer, ("STOP",))
        used = 0
        while not stream.stopped:
            for token in tokens[used : used + block]:
                stream.push(token)
                used += 1
                if stream.stopped:
                    break
        assert used == offset + 4
        assert stream.text == "x" * offset
        assert stream.push(tokens[used]) == stream.finish() == ""
        assert stream.text == "x" * offset


def test_text_that_is_no_stop_after_all_is_given_out(byte_tokenizer):
    _, pieces = run(byte_tokenizer, bytes_of("a\n\nb\n\n"), "\n\n\n")
    assert pieces == ["a", "", "", "\n\nb", "", "", "\n\n"]


def test_a_stop_string_inside_one_token(byte_tokenizer):
    token = 256 + PIECES.index("the end")
    stream, pieces = run(byte_tokenizer, [97, token, 98], "e e")
    assert stream.stopped
    assert pieces == ["a", "th", "", ""]


def test_a_stop_string_before_an_incomplete_character_stops_at_once(byte_tokenizer):
    stream = TextStream(byte_tokenizer, ("ab",))
    stream.push(97)
    assert not stream.stopped
    stream.push(98)
    assert stream.stopped


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("xabcd", ("bc", "abcd"), "xa"),  # "bc" is complete first
        ("xabcy", ("abcd", "bc"), "xa"),
        ("aab", ("ab",), "a"),
        ("aaaaaab", ("aaab",), "aaa"),
        ("abababc", ("ababc",), "ab"),
        ("a€b", ("€",), "a"),
        ("abc", ("abc", "ab"), ""),
        ("abc", ("zz", "abcd"), "abc"),
    ],
)
def test_overlapping_stop_strings(byte_tokenizer, text, stop, kept):
    stream, _ = run(byte_tokenizer, bytes_of(text), *stop)
    assert stream.text == kept
    assert stream.stopped == (kept != text)


def test_the_earliest_of_several_in_one_token_wins(byte_tokenizer):
    stream, _ = run(byte_tokenizer, [97, 256 + PIECES.index("cab")], "b", "ac", "ca")
    assert stream.text == ""


@no_deadline
@given(
    tokens=st.lists(st.sampled_from([97, 98, 99, 32, *range(256, 256 + len(PIECES))]), max_size=30),
    stop=st.lists(st.text("abc €é", min_size=1, max_size=5), max_size=3).map(tuple),
)
def test_stops_at_the_first_token_that_completes_one(byte_tokenizer, tokens, stop):
    """Against decoding everything after each token."""
    stream = TextStream(byte_tokenizer, stop)
    given_out = ""
    for count, token in enumerate(tokens, start=1):
        given_out += stream.push(token)
        text = byte_tokenizer.decode(tokens[:count])
        found = [text.find(s) for s in stop if s in text]
        assert stream.stopped == bool(found)
        if found:
            assert given_out == stream.text == text[: min(found)]
            assert stream.finish() == ""
            return
        assert text.startswith(given_out)
        held = text[len(given_out) :]
        assert not held or any(s.startswith(held) for s in stop)
    assert given_out + stream.finish() == byte_tokenizer.decode(tokens)
    assert not stream.stopped
