"""What a shell reads back is what was meant, and a terminal shows it unharmed."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from magicdec.cli.output.files import shell_line, shell_word

WORDS = {
    "plain": "docs/a.txt", "empty": "", "space": "my notes.txt", "quote": "it's",
    "title": "\033]0;pwned\007", "lines": "a\nb\\c'd", "bytes": os.fsdecode(b"caf\xe9"),
    "invisible": "a\u202eb\u200bc", "greek": "γ.txt", "dollar": "$HOME`id`\033",
}  # fmt: skip


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("ascii", [False, True])
def test_a_shell_reads_it_back(word: str, ascii: bool) -> None:
    written = shell_word(word, ascii=ascii)
    assert written.isprintable() and (written.isascii() or not ascii)
    read = subprocess.run(["bash", "-c", f"printf %s {written}"], capture_output=True, check=True)
    assert read.stdout == os.fsencode(word)


def test_ordinary_words_are_quoted_as_ever() -> None:
    words = ["magicdec", "run", "my notes.txt", "γ.txt"]
    assert shell_line(words) == shlex.join(words)
