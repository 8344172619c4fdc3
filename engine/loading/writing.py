"""Writing a safetensors file tensor by tensor.

The library's own writer wants every tensor in memory at once; dequantised weights may not fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
