"""Stop strings that cannot do what they look like are said so."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

from magicdec.engine.text.stops import idle_stops
from magicdec.engine.text.tokenizer import Tokenizer


@pytest.fixture
def chat() -> Tokenizer:
    backend = Backend(WordLevel({"a": 0}, unk_token="a"))
    backend.add_special_tokens(["<|im_end|>"])
    backend.add_tokens(["<think>"])  # has a text
    return Tokenizer(backend)


@pytest.mark.parametrize("stop", ["\n", "User:", "<|im_end|>", "<think> so", "a\\b", "<|im_end"])
def test_nothing_is_said_of_those_that_work(stop: str, chat: Tokenizer) -> None:
    assert list(idle_stops(chat, (stop,))) == []


def test_a_backslash_and_an_n_is_no_line_break(chat: Tokenizer) -> None:
    (line,) = idle_stops(chat, ("\\nUser:",))
    assert line.startswith(r"stop \nUser: holds a backslash and the letter n;")
    assert r"a shell writes $'\nUser:'" in line and "\n" not in line


def test_no_text_holds_a_special_token(chat: Tokenizer) -> None:
    for stop in ("<|im_end|>\n", "text<|im_end|>"):
        (line,) = idle_stops(chat, ("fine", stop))
        assert "is never found: it holds the special token '<|im_end|>'" in line
        assert "\n" not in line
