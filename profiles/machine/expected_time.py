"""Says about how long measurements take, before any of them is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magicdec.engine.errors import MagicdecError
from magicdec.profiles.calibration.calibration import BYTES, Calibration
from magicdec.profiles.costs.catalog import find_hardware
from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.roofline import forward

ROUGH_CPU = "cpu-avx2"  # of the catalogue, where nothing is known of a CPU
READ = 0.25  # of a plain pass: what a survey takes to read the text with one more drafter


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of passes by a model on this machine; guessed: nobody has calibrated it."""

    model: ModelShape
    hardware: Hardware | None
    weight_bytes: float
    kv_bytes: float
    guessed: bool

    @classmethod
    def of(
        cls, calibration: Calibration | None, model: ModelShape, environment: Mapping[str, object]
    ) -> Pace:
        """environment: a session's, which the calibration holds for."""
        weights, kv = (BYTES.get(str(environment.get(k)), 4.0) for k in ("dtype", "kv_dtype"))
        if calibration is not None:
            return cls(model, calibration.hardware, weights, kv, guessed=False)
        gpu = environment.get("device") == "cuda"
        try:
            hardware = find_hardware(str(environment.get("device_name")) if gpu else ROUGH_CPU)
        except MagicdecError:
            hardware = None
        return cls(model, hardware, weights, kv, guessed=True)

    def prefill(self, context: int) -> float:
        """Of one row."""
        return self._pass(1, context / 2, context)

    def decode(self, batch: int, context: int, tokens: int) -> float:
        """Of rows, plainly. A draft is there to take no longer."""
        return tokens * self._pass(batch, context + tokens / 2, 1)

    def _pass(self, rows: int, entries: float, new: int) -> float:
        if self.hardware is None:
            return 0.0
        cost = forward(
            self.model, self.hardware, rows=rows, entries=entries, new=new,
            weight_bytes=self.weight_bytes, kv_bytes=self.kv_bytes,
        )  # fmt: skip
        return float(cost.total)
