"""Small host data to the device, without making the host wait for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def to_device(values: Sequence[Any], device: torch.device) -> Tensor:
    """A tensor of (nested sequences of) integers or floats.

    A copy from ordinary memory to a GPU waits until all queued work is done; one from pinned
    memory is queued like any other.
    """
    if device.type == "cpu":
        return torch.tensor(values, device=device)
    return torch.tensor(values, pin_memory=True).to(device, non_blocking=True)
