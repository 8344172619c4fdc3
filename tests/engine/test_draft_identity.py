"""A draft model's identity is that of the weights that draft, whatever became of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magicdec.engine.config import DecodeConfig
from magicdec.engine.session import open_session


def put(folder: Path, by: float) -> None:
    """Other weights in the same file, as a copy over it leaves them."""
    from safetensors.torch import load_file, save

    path = folder / "model.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    weights["model.norm.weight"] += by
    path.write_bytes(save(weights, metadata={"format": "pt"}))


def test_a_draft_that_is_read_again_is_named_anew(make_checkpoint: Any, tmp_path: Path) -> None:
    target, first, second = (make_checkpoint(tmp_path / name, seed) for seed, name in
                             enumerate(("target", "first", "second")))  # fmt: skip
    session = open_session(str(target), device="cpu", attention="sdpa")
    one, other = (DecodeConfig(draft=str(path), gamma=2) for path in (first, second))
    before = session.drafts.identity(one)
    session.drafts.model(one)
    put(first, 0.5)
    assert session.drafts.identity(one) == before, "what is loaded is what it was"
    session.drafts.model(other)  # the first one's memory is its own now
    session.drafts.model(one)
    after = session.drafts.identity(one)
    assert after is not None and after != before
    fresh = open_session(str(target), device="cpu", attention="sdpa")
    assert fresh.drafts.identity(one) == after
