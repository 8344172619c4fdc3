"""Converting a GGUF file into a folder that opens at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.checkpoint import Progress
from magicdec.engine.loading.converted_cache import SPEC
from magicdec.engine.loading.files import one_line
from magicdec.engine.loading.gguf.kinds import check_kinds
from magicdec.engine.loading.gguf.spec import spec_from_metadata
from magicdec.engine.loading.gguf.tokenizer import write_tokenizer
from magicdec.engine.loading.weights import SINGLE, Array, check_shapes, write_float32
from magicdec.engine.model.spec import ModelSpec

ROPE_FACTORS = "rope_freqs.weight"

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)")


def hf_name(name: str) -> str:
    """Raises ModelError for a tensor that the decoder would not use."""
    match = _NAME.fullmatch(name)
    if match is not None:
        layer, part, kind = match["layer"], match["part"], match["kind"]
        if layer is None and part in _TOP:
            return f"{_TOP[part]}.{kind}"
        if layer is not None and part in _LAYER:
            return f"model.layers.{layer}.{_LAYER[part]}.{kind}"
    raise ModelError(
        f"the GGUF file has a tensor {name!r} that no supported model has; "
        "choose a dense llama, qwen2 or qwen3 file"
    )


def shape_of(tensor: Any) -> tuple[int, ...]:
    """GGUF lists dimensions from the innermost out."""
    return tuple(int(size) for size in reversed(tensor.shape))


def values(tensor: Any, spec: ModelSpec, architecture: str) -> NDArray[np.float32]:
    """One tensor dequantised to float32, its rows in transformers' order."""
    array = gguf.dequantize(tensor.data, tensor.tensor_type)
    array = np.asarray(array, dtype=np.float32).reshape(shape_of(tensor))
    if architecture == "llama":
        if ".attn_q." in tensor.name:
            return unpermute(array, spec.heads)
        if ".attn_k." in tensor.name:
            return unpermute(array, spec.kv_heads)
    return array


def unpermute(array: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undoes llama.cpp's row order for its rotary embedding.

    It pairs neighbouring rows of a head where transformers pairs row i with row i + D / 2.
    """
    paired = array.reshape(heads, -1, 2, *array.shape[1:])  # [H, D / 2, 2, ...]
    return paired.swapaxes(1, 2).reshape(array.shape)


MAGIC = b"GGUF"
_MOST_READS = 2**22  # a few per value of the metadata; the largest vocabularies take 2 million
_LONGEST_ARRAY, _LONGEST_TEXT = 2**20, 2**24  # values, bytes: several times the largest known
_MOST_ENTRIES = 2**17  # keys, or tensors: those of 10,000 layers


def convert(file: Path, folder: Path, progress: Progress) -> None:
    """Writes model.safetensors (float32), spec.json and the tokenizer of `file` into `folder`.

    Raises ModelError for a damaged or unsupported file, OSError when `folder` cannot be written.
    """
    what = f"converting {file.name}"
    progress(what, 0.0)
    reader, metadata = _read(file)
    if metadata.get("split.count", 1) > 1:
        raise ModelError(
            f"{file} is one of {metadata['split.count']} parts; join them first: "
            "llama-gguf-split --merge FIRST_PART OUT.gguf"
        )
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    factors = tensors.pop(ROPE_FACTORS, None)
    shapes = {hf_name(name): shape_of(tensor) for name, tensor in tensors.items()}
    embedding = shapes.get("model.embed_tokens.weight", ())
    if len(embedding) != 2:
        raise ModelError(
            f"{file} lacks a matrix 'model.embed_tokens.weight'; download the whole file again"
        )
    spec = spec_from_metadata(
        metadata,
        vocab_size=embedding[0],
        tied="output.weight" not in tensors,
        rope_factors=None if factors is None else np.asarray(factors.data, dtype=np.float32),
    )
    check_shapes(spec, shapes, file)
    (folder / SPEC).write_text(json.dumps(spec.to_json()), encoding="utf-8")
    progress(what, 0.2)
    write_tokenizer(file, metadata, folder)

    def arrays() -> Iterator[tuple[str, Array]]:
        architecture = metadata["general.architecture"]
        for done, (name, tensor) in enumerate(zip(shapes, tensors.values(), strict=True)):
            progress(what, 0.4 + 0.6 * done / len(tensors))
            yield name, values(tensor, spec, architecture)

    write_float32(folder / SINGLE, shapes, arrays())
    progress(what, 1.0)


class _Reader(gguf.GGUFReader):  # type: ignore[misc]
    """Holds the mapped file as a plain array: numpy cuts those three times faster than a memmap,
    and the vocabulary is read in a hundred thousand cuts."""

    _reads = 0

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        """All reads come through here. The base class takes less than it asks for as all there is,
        and so goes on for ever where a file says that it holds 2^60 values."""
        self._reads += 1
        end = int(offset) + int(count) * np.dtype(dtype).itemsize
        if not int(offset) <= end <= len(self._data) or self._reads > _MOST_READS:
            raise ValueError("says that it holds more than it does")
        return super()._get(offset, dtype, count, override_order)

    def _get_str(self, offset: int) -> Any:
        self._require_most(super()._get(offset, np.uint64), _LONGEST_TEXT)
        return super()._get_str(offset)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type == gguf.GGUFValueType.ARRAY:  # its values' type comes before its length
            self._require_most(super()._get(orig_offs + 4, np.uint64), _LONGEST_ARRAY)
        return super()._get_field_parts(orig_offs, raw_type)

    def _build_fields(self, offs: int, count: int) -> Any:
        self._require_most([count], _MOST_ENTRIES)
        return super()._build_fields(offs, count)

    def _build_tensor_info(self, offs: int, count: int) -> Any:
        self._require_most([count], _MOST_ENTRIES)
        return super()._build_tensor_info(offs, count)

    @staticmethod
    def _require_most(length: Any, most: int) -> None:
        """A file may be as long as it says and still hold what no model has; it would all be kept
        in memory, a value at a time."""
        if len(length) != 1 or int(length[0]) > most:
            raise ValueError("holds more than any model does")

    @property
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, mapped: Any) -> None:
        self._data = np.asarray(mapped)


def _damage(begin: bytes) -> str:
    if begin != MAGIC[: len(begin)]:
        return f"is no GGUF file: it does not begin with {MAGIC.decode()}"
    return "is not a complete GGUF file: it is cut short or damaged"


def _read(file: Path) -> tuple[Any, dict[str, Any]]:
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(MAGIC))
    except OSError as error:
        raise ModelError(
            f"{file} cannot be read ({one_line(error)}); check its permissions"
        ) from None
    try:
        reader = _Reader(file)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # the reader trusts its input: any numpy or decoding error
        raise ModelError(f"{file} {_damage(begin)}; download it again") from error
    if "tokenizer.ggml.tokens" not in metadata:
        raise ModelError(f"{file} has no tokenizer; choose a file that holds a whole model")
    check_kinds(file, metadata)
    return reader, metadata
