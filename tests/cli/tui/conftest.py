"""Fixtures of the app's tests. Its helpers are importable as `magicdec_scripted`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from magicdec.cli.tui.app import TuningApp


def _load(name: str, path: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_load("magicdec_scripted", Path(__file__).with_name("scripted.py"))

from magicdec_scripted import SETTINGS, FakeClock, ScriptedLink  # noqa: E402


@pytest.fixture
def link() -> ScriptedLink:
    return ScriptedLink()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(
    link: ScriptedLink, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> TuningApp:
    """Without a calibration of this machine, so that predictions are everywhere the same."""
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "cache"))
    return TuningApp(link, ["doc.txt"], SETTINGS, now=clock)
