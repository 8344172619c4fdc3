"""What kind of value each key of a GGUF file's metadata has, where it is read as it stands.

The numbers of an architecture are checked where they are read, see `spec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ModelError
from magicdec.engine.untrusted import shown

_TOKENIZER = "tokenizer.ggml."
_KINDS: dict[str, tuple[type, ...]] = {
    "general.architecture": (str,),
    "split.count": (int,),
    "tokenizer.chat_template": (str,),
    f"{_TOKENIZER}model": (str,),
    f"{_TOKENIZER}pre": (str,),
    f"{_TOKENIZER}add_bos_token": (bool,),
    f"{_TOKENIZER}add_space_prefix": (bool,),
    **{
        f"{_TOKENIZER}{name}_token_id": (int,)
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding", "fim_pad", "fim_rep",
                     "fim_sep")
    },
}  # fmt: skip
_ITEMS: dict[str, tuple[type, ...]] = {
    f"{_TOKENIZER}tokens": (str,),
    f"{_TOKENIZER}merges": (str,),
    f"{_TOKENIZER}token_type": (int,),
    f"{_TOKENIZER}scores": (int, float),
}
_WORDS = {str: "a text", int: "a whole number", bool: "true or false", float: "a number"}


def check_kinds(file: Path, metadata: Mapping[str, Any]) -> None:
    """Raises ModelError for a value of another kind than its key says."""
    for key, kinds in _KINDS.items():
        value = metadata.get(key)
        if value is not None and type(value) not in kinds:
            raise _odd(file, key, value, _WORDS[kinds[0]])
    for key, kinds in _ITEMS.items():
        value = metadata.get(key)
        if value is None:
            continue
        if not isinstance(value, list):
            raise _odd(file, key, value, "a list")
        for item in value:
            if type(item) not in kinds:
                raise _odd(file, key, item, f"{_WORDS[kinds[-1]]} in each place")


def _odd(file: Path, key: str, value: object, needed: str) -> ModelError:
    return ModelError(
        f"{file} has {key} = {shown(value)} where {needed} is needed; download it again, or choose "
        "a file converted by a current llama.cpp"
    )
