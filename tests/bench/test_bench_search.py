"""The search benchmark's shape; its figures are nobody's test."""

from __future__ import annotations

from tests.bench import search
from tests.bench.search import SearchBench


def test_a_figure_for_keys_of_each_storage_and_for_codes(monkeypatch):
    monkeypatch.setattr(search, "POOL_BYTES", 0)
    found = list(SearchBench(rows=2, context=300, rounds=1).run())
    assert [m.name.rpartition("300, ")[2] for m in found] == [
        "keys, fp32", "keys, bf16", "codes of fp32",
    ]  # fmt: skip
    assert all(m.at_most and "torch" in m.note and (m.value or m.error) for m in found)
    assert [m.goal for m in found] == [1.3, None, None]
