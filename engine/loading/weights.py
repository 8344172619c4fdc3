"""Safetensors files as a lazy mapping: a tensor is mapped into memory when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.files import LONGEST_NAME, check_file, one_line, read_json
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.untrusted import shown

Shape = tuple[int, ...]

HEAD = "lm_head.weight"


def required_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Every tensor that the decoder cannot do without."""
    shapes: dict[str, Shape] = {
        "model.embed_tokens.weight": (spec.vocab_size, spec.hidden_size),
        "model.norm.weight": (spec.hidden_size,),
    }
    if not spec.tied:
        shapes[HEAD] = (spec.vocab_size, spec.hidden_size)
    for i in range(spec.layers):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = (spec.hidden_size,)
        for linear, (rows, columns) in _linears(spec).items():
            shapes[f"{layer}{linear}.weight"] = (rows, columns)
        optional = _optional(spec)
        for name in _ALWAYS.get(spec.model_type, ()):
            shapes[layer + name] = optional[name]
    return shapes


def optional_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Tensors that are used where a checkpoint has them: biases and norms of q and k."""
    optional = _optional(spec)
    return {
        f"model.layers.{i}.{name}": shape
        for i in range(spec.layers)
        for name, shape in optional.items()
    }


def check_shapes(spec: ModelSpec, found: Mapping[str, Shape], where: object) -> None:
    """Raises ModelError when a tensor of `spec` is missing from `found` or has another shape."""
    required = required_shapes(spec)
    for name in required:
        if name not in found and name == HEAD:
            raise ModelError(
                f"{where} is a base model: it has no head ({HEAD}), and its configuration does not "
                "say that the embeddings are it (tie_word_embeddings); choose the model that was "
                "saved with its head"
            )
        if name not in found:
            raise ModelError(
                f"{where} lacks tensor {name!r}, which its configuration asks for; "
                "copy or download the whole model again"
            )
    for name, shape in (required | optional_shapes(spec)).items():
        if found.get(name, shape) != shape:
            heads = (
                f" for {spec.heads} heads and {spec.kv_heads} KV heads of {spec.head_dim}"
                if ".self_attn." in name
                else ""
            )
            raise ModelError(
                f"tensor {name!r} in {where} has shape {list(found[name])} where its "
                f"configuration asks for {list(shape)}{heads}; check config.json, or copy or "
                "download the whole model again"
            )


_ALWAYS = {
    "qwen2": tuple(f"self_attn.{x}_proj.bias" for x in "qkv"),
    "qwen3": ("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
}


def _linears(spec: ModelSpec) -> dict[str, tuple[int, int]]:
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    return {
        "self_attn.q_proj": (queries, spec.hidden_size),
        "self_attn.k_proj": (keys, spec.hidden_size),
        "self_attn.v_proj": (keys, spec.hidden_size),
        "self_attn.o_proj": (spec.hidden_size, queries),
        "mlp.gate_proj": (spec.intermediate_size, spec.hidden_size),
        "mlp.up_proj": (spec.intermediate_size, spec.hidden_size),
        "mlp.down_proj": (spec.hidden_size, spec.intermediate_size),
    }


def _optional(spec: ModelSpec) -> dict[str, Shape]:
    biases: dict[str, Shape] = {
        f"{name}.bias": (rows,) for name, (rows, _) in _linears(spec).items()
    }
    norms = {f"self_attn.{x}_norm.weight": (spec.head_dim,) for x in "qk"}
    return biases | norms


SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_PREFIX = "model."
_FLOATS = ("F32", "F16", "BF16", "F64")


class Weights(Mapping[str, Tensor]):
    """Parameter name -> CPU tensor, over one or more safetensors files.

    Opening reads the headers only. Raises ModelError for a file that is missing or damaged.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        #: Name, bytes and time of change (ns) of each file, as it was opened.
        self.stamps: list[tuple[str, int, int]] = []
        self._file_of: dict[str, Any] = {}
        for path in files:
            check_file(path)
            try:
                with path.open("rb"):  # the library calls "missing" whatever it cannot open
                    pass
                file = safe_open(path, framework="pt", device="cpu")
                status = path.stat()
            except FileNotFoundError:
                raise ModelError(
                    f"weights file {path} is missing; copy or download the whole model again"
                ) from None
            except OSError as error:
                raise ModelError(
                    f"weights file {path} cannot be read ({error.strerror}); check it and its "
                    "permissions"
                ) from None
            except SafetensorError as error:
                raise ModelError(
                    f"weights file {path} is damaged ({one_line(error)}); copy or download it again"
                ) from None
            self.stamps.append((path.name, status.st_size, status.st_mtime_ns))
            names: list[str] = list(file.keys())  # type: ignore[no-untyped-call]
            self._file_of.update(dict.fromkeys(names, file))
        # A base model, saved without its head, has names without this.
        bare = [name for name in self._file_of if not name.startswith((_PREFIX, "lm_head."))]
        self._stored = {_PREFIX + name: name for name in bare if "embed_tokens.weight" in bare}
        for name, stored in self._stored.items():
            self._file_of[name] = self._file_of.pop(stored)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._file_of[name].get_tensor(self._stored.get(name, name))
        return tensor

    def leave_out(self, names: Sequence[str]) -> None:
        """They are as if they were not there."""
        for name in names:
            del self._file_of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)

    def shapes(self) -> dict[str, Shape]:
        """Every tensor's shape, from the headers."""
        return {name: tuple(self._header(name).get_shape()) for name in self}

    def dtype(self, name: str) -> str:
        """Safetensors' name of a tensor's type, such as BF16."""
        dtype: str = self._header(name).get_dtype()
        return dtype

    def _header(self, name: str) -> Any:
        return self._file_of[name].get_slice(self._stored.get(name, name))


def open_weights(folder: Path, spec: ModelSpec) -> Weights:
    """Opens a folder's safetensors and holds them to `spec`.

    Raises ModelError for missing, damaged or pickled files and for missing or misshapen tensors.
    """
    weights = Weights(_weight_files(folder))
    check_shapes(spec, weights.shapes(), folder)
    for name in required_shapes(spec):
        if (dtype := weights.dtype(name)) not in _FLOATS:
            raise ModelError(
                f"tensor {name!r} in {folder} is stored as {dtype}; choose a checkpoint in "
                "float32, float16 or bfloat16, or a .gguf file"
            )
    return weights


def refuse_pickle(path: Path) -> ModelError:
    """The error for weights that could run code when opened, with the way to convert them."""
    folder = path.parent
    return ModelError(
        f"{path} is a pickle, which can run code when opened, so it is refused; if you trust it, "
        f'convert it once: python -c "from transformers import AutoModelForCausalLM as M; '
        f'M.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"'
    )


def _weight_files(folder: Path) -> list[Path]:
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if (folder / INDEX).exists():
        placed = read_json(folder / INDEX).get("weight_map")
        if not isinstance(placed, dict) or not placed:
            raise ModelError(
                f"{folder / INDEX} has no weight_map; copy or download the whole model again"
            )
        return sorted({_inside(folder, file) for file in placed.values()})
    for pattern in PICKLES:
        for path in sorted(folder.glob(pattern)):
            raise refuse_pickle(path)
    ggufs = sorted(folder.glob("*.gguf"))
    hint = f"; for its GGUF give the file itself: {ggufs[0]}" if ggufs else ""
    raise ModelError(f"{folder} has neither {SINGLE} nor {INDEX}{hint}")


def _inside(folder: Path, file: object) -> Path:
    """The path of an index's file. Raises ModelError where it is none of the folder."""
    path = Path(file) if isinstance(file, str) and _is_name(file) else None
    if path is None or path.is_absolute() or ".." in path.parts or not path.name:
        raise ModelError(
            f"{folder / INDEX} names the weights file {shown(file)}, which is not in the folder; "
            "copy or download the whole model again"
        )
    return folder / path


def _is_name(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= LONGEST_NAME and "\0" not in text
    except UnicodeEncodeError:  # half a character
        return False


Array = NDArray[np.float32]


def write_float32(
    path: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[tuple[str, Array]]
) -> None:
    """Writes `tensors`, which come in the order of `shapes`, as little-endian float32.

    Format: the header's length as 8 bytes, the header as JSON padded to 8 bytes, the data.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    expected = iter(shapes.items())
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name, tensor in tensors:
            assert (name, tensor.shape) == next(expected), (name, tensor.shape)
            file.write(np.ascontiguousarray(tensor, dtype="<f4").data)
        assert next(expected, None) is None


_SAMPLED = 256  # elements at the start, in the middle and at the end of each tensor
_READ_WHOLE = 2**23  # elements: hundredths of a second


def identity_of(spec: ModelSpec, weights: Mapping[str, Tensor]) -> str:
    """A name for a model's numbers: equal only if the specification, every tensor's name, shape,
    dtype and sampled elements, and the size and time of change of every file are.

    Samples tell models apart whose files agree in size and time (unpacked from one archive, say);
    the time tells apart what differs only between samples. A copy may look like another model,
    which costs a prefill; another model does not look like this one.
    """
    digest = blake2b(json.dumps(spec.to_json(), sort_keys=True).encode(), digest_size=16)
    if isinstance(weights, Weights):
        digest.update(repr(weights.stamps).encode())
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat, middle = tensor.flatten(), tensor.numel() // 2
        for part in (flat[:_SAMPLED], flat[middle : middle + _SAMPLED], flat[-_SAMPLED:]):
            digest.update(part.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def content_of(spec: ModelSpec, weights: Mapping[str, Tensor]) -> str:
    """The same name wherever the files lie: what measurements are kept under, which a copy of the
    model or a new conversion of it may go on with. Small models are read as a whole, in large ones
    a change between the samples alone is not seen.
    """
    digest = blake2b(identity_of(spec, MappingProxyType(weights)).encode(), digest_size=16)
    if spec.parameters <= _READ_WHOLE:
        for name in sorted(weights):
            flat = weights[name].flatten().contiguous()
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
