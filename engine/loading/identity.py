"""Which weights a result was computed with, cheaply: hashing gigabytes at every start is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType

import torch
from torch import Tensor

from magicdec.engine.loading.weights import Weights
from magicdec.engine.model.spec import ModelSpec

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
