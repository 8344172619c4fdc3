"""The benchmark runs and yields what it promises, on a tiny model; its timings are not judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.session import open_session
from magicdec.engine.text.documents import read_document
from magicdec.profiles.calibration.measure import Machine
from magicdec.profiles.calibration.steps import Rows
from tests.bench import against, decoding


@pytest.fixture
def folder(tiny: Any, tokenizer: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    tiny().theirs.save_pretrained(folder)
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def rows(folder: Path, tmp_path: Path) -> Rows:
    document = tmp_path / "doc.txt"
    document.write_text(" ".join(f"w{3 + i * 7 % 120}" for i in range(700)))
    return Rows(open_session(str(folder)), read_document(str(document)), batch=2, context=300)


def test_rows_of_every_size_come_from_one_prefill(rows):
    config = decoding.DecodeConfig(max_new_tokens=2, gamma=0)
    rows.decode(rows.requests(2, 300), config)
    smaller = rows.decode(rows.requests(2, 200), config)
    assert [len(r.tokens) for r in rows.requests(2, 300)] == [316, 300]
    assert smaller.reused_prompt_tokens == 200 + 216 - 2 * 64


def test_the_grid_measures_every_cell(rows, monkeypatch):
    monkeypatch.setattr(decoding, "BATCHES", (1, 2))
    monkeypatch.setattr(decoding, "CONTEXTS", (100, 200))
    monkeypatch.setattr(decoding, "GAMMAS", (1, 2))
    monkeypatch.setattr(decoding, "GOALS", {(2, 200): (1.3, 0.3, 1.4)})
    monkeypatch.setattr(decoding, "NEW_TOKENS", 12)
    found = list(decoding.DecodingBench(rows, Machine()).run())
    assert len(found) == 4 * (1 + 2 + 1 + 1)
    assert all(m.error if m.value is None else m.value > 0 for m in found)
    assert [m.name.split(",")[0] for m in found if m.goal is not None] == [
        "plain step / floor", "T_D / T_T", "speculative / plain tokens/s"
    ]  # fmt: skip


def test_transformers_decodes_from_our_cache(rows, folder, monkeypatch):
    monkeypatch.setattr(against, "CONTEXT", 200)
    monkeypatch.setattr(against, "BATCH", 2)
    monkeypatch.setattr(against, "BUDGETS", (40,))
    monkeypatch.setattr(against, "GAMMAS", (2,))
    monkeypatch.setattr(against, "NEW_TOKENS", 10)
    found = list(against.AgainstTransformers(rows, open_checkpoint(str(folder))).run())
    assert len(found) == 1 + 1 + 2 + 1
    assert all(m.value > 0 for m in found if m.unit == "×")
    assert all(0 <= m.value <= 1 for m in found if m.unit == "")
