"""The engine's process with a fake session: python fake_worker.py SCENE DELAY."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from magicdec.cli import session_api
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.process import worker
from magicdec.cli.tune.session import TuneOutcome
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import OutOfMemoryError
from magicdec.engine.report import RunReport
from magicdec.profiles.costs.model import ModelShape

path = Path(__file__).parents[2] / "fake_session.py"
spec = importlib.util.spec_from_file_location("magicdec_fake_session", path)
assert spec is not None and spec.loader is not None
fake = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = fake
spec.loader.exec_module(fake)


class Fake(fake.FakeSession):  # type: ignore[name-defined, misc]
    def load(self) -> None:
        pass

    def facts(self) -> session_api.Facts:
        shape = ModelShape("fake", 30, 576, 1536, 9, 3, 64, 49152, 8192, True)
        return session_api.Facts(shape, 2**34, True)

    def configured(self, settings: Settings) -> Fake:
        made = Fake(self.scene, self.delay, self.sources, settings)
        return made

    def check(self, plain: RunReport, speculative: RunReport) -> Losslessness:
        return Losslessness(True)

    def spell(self, before: int, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def tune(self, outcome: TuneOutcome, progress: Any) -> None:
        """Step after step that takes a while and says nothing; see the scene for its end."""
        progress("surveying", 0.25)
        if self.scene == "tune-fails":
            raise OutOfMemoryError("needs 40 GiB, 16 are free")
        while self.scene == "tune-hangs":
            time.sleep(0.01)

    def run(self, config: DecodeConfig) -> Any:
        if self.scene == "die":
            print("a library\nsaid its last word", file=sys.stderr)
            os.kill(os.getpid(), 9)
        if self.scene == "noise":
            os.write(1, b"a library prints on standard output\n")
        yield from super().run(config)


def opened(sources: Sequence[str], settings: Settings, progress: Any) -> Any:
    return Fake(sys.argv[1], float(sys.argv[2])).open(sources, settings, progress)


session_api.open_session = opened  # type: ignore[assignment]
worker.main()
