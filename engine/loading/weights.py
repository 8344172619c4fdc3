"""Safetensors files as a lazy mapping: a tensor is mapped into memory when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from magicdec.engine.errors import ModelError
from magicdec.engine.harmless import shown
from magicdec.engine.loading.files import LONGEST_NAME, check_file, one_line, read_json
from magicdec.engine.loading.shapes import Shape, check_shapes, required_shapes
from magicdec.engine.model.spec import ModelSpec

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
