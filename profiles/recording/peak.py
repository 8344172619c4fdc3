"""The most memory a stretch of the program held."""

from __future__ import annotations

from pathlib import Path

import torch

CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class PeakMemory:
    """From its making on: of the device where there is one, else of the process (Linux only)."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            CLEAR.write_text("5")  # resets VmHWM, see proc(5)
            self._known = True
        except OSError:
            self._known = False

    def bytes(self) -> int | None:
        """None where it cannot be known."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        if not self._known:
            return None
        lines = STATUS.read_text().splitlines()
        peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
        return None if peak is None else int(peak) * 1024
