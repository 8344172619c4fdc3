"""Measures one cell: the same rows plainly and speculatively in turn, a few times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.request import Request
from magicdec.profiles.passes import Listener, Pass, Passes, full_steps, steadiness
from magicdec.profiles.recording.peak import PeakMemory
from magicdec.profiles.storage.from_reports import cell_of, prefill_of
from magicdec.profiles.storage.schema import Cell, CellKey, Predicted, Prefill

#: (cell, its rows, new tokens of each) to what is expected of it; None when that is unknown.
Predict = Callable[[CellKey, Sequence[Request], int], Predicted | None]
#: (cell, its settings, its rows) to the settings that are run.
Prepare = Callable[[CellKey, DecodeConfig, Sequence[Request]], DecodeConfig]
WARM_UP_TOKENS = 8


class Bench:
    """Measures cells on the same rows."""

    def __init__(
        self, passes: Passes, listen: Listener, predict: Predict, prepare: Prepare
    ) -> None:
        self._passes, self._listen = passes, listen
        self._predict, self._prepare = predict, prepare
        self._prefill: Prefill | None = None  # of the first pass

    def run(self, config: DecodeConfig) -> Pass:
        """Raises what `Session.run` raises."""
        return self._passes.run(config, self._listen)

    def warm_up(self, config: DecodeConfig) -> None:
        """Prefills, and brings kernels, weights and memory to where a measurement finds them."""
        few = min(WARM_UP_TOKENS, config.max_new_tokens)
        done = self.run(replace(config, max_new_tokens=few))
        self._prefill = self._prefill or prefill_of(done.report)

    def measure(self, key: CellKey, config: DecodeConfig, repeats: int) -> Cell:
        """One cell. Plain and speculative passes take turns, so that a machine that slows down
        slows both.
        """
        predicted = self._predict(key, self._passes.requests, config.max_new_tokens)
        config = self._prepare(key, config, self._passes.requests)
        bare = replace(config, gamma=0)
        self.warm_up(bare)
        self.warm_up(config)
        peak = PeakMemory(self._passes.session.device)
        pairs = [(self.run(bare), self.run(config)) for _ in range(repeats)]
        memory = peak.bytes()
        verdicts = [self._passes.check(config, plain, after) for plain, after in pairs]
        return cell_of(
            key,
            [(plain.report, after.report) for plain, after in pairs],
            steadiness=[steadiness(plain, after) for plain, after in pairs],
            step=full_steps(*zip(*pairs, strict=True)),
            lossless=next((v for v in verdicts if v.checked and not v.identical), verdicts[0]),
            predicted=predicted,
            peak_memory_bytes=memory,
            prefill=self._prefill,
            draft_identity=self._passes.session.drafts.identity(config),
        )
