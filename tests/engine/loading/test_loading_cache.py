"""The cache of converted models: reuse, damage, change and concurrency."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from magicdec.engine.errors import ModelError
from magicdec.engine.loading import converted_cache, file_hashes
from magicdec.engine.loading.open import open_checkpoint
from magicdec.kernels.cachedir import cache_root

Make = Callable[..., tuple[Path, Any]]


class Heard:
    """A Progress that remembers."""

    def __init__(self) -> None:
        self.shares: list[float | None] = []

    def __call__(self, what: str, share: float | None) -> None:
        assert what.startswith("converting ")
        self.shares.append(share)


def opened(file: Path) -> tuple[Any, bool]:
    """The model, and whether it had to be converted."""
    heard = Heard()
    checkpoint = open_checkpoint(str(file), heard)
    assert heard.shares == sorted(heard.shares)
    assert not heard.shares or heard.shares[-1] == 1.0
    return checkpoint, bool(heard.shares)


def entry_of(cache_dir: Path) -> Path:
    (entry,) = (path for path in (cache_dir / "models").iterdir() if path.is_dir())
    return entry


def test_second_opening_converts_nothing(gguf_file: Make, cache_dir: Path) -> None:
    file, _ = gguf_file()
    first, converted = opened(file)
    assert converted
    second, converted = opened(file)
    assert not converted
    assert second.spec == first.spec
    assert second.tokenizer.backend.to_str() == first.tokenizer.backend.to_str()
    assert sorted(path.name for path in entry_of(cache_dir).iterdir()) == [
        "entry.json",
        "model.safetensors",
        "spec.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_changed_file_replaces_its_entry(gguf_file: Make, cache_dir: Path) -> None:
    file, _ = gguf_file()
    opened(file)
    _, model = gguf_file("qwen3")  # the same path
    checkpoint, converted = opened(file)
    assert converted
    assert checkpoint.spec.model_type == "qwen3"
    assert torch.equal(checkpoint.weights["lm_head.weight"], model.lm_head.weight)
    entry_of(cache_dir)  # there is one entry only
    os.utime(file, ns=(1, 1))
    assert opened(file)[1]


def test_files_of_one_name_do_not_collide(gguf_file: Make, tmp_path: Path) -> None:
    file, _ = gguf_file()
    (tmp_path / "other").mkdir()
    other = file.rename(tmp_path / "other" / file.name)
    file, _ = gguf_file("qwen2")
    assert opened(other)[0].spec.model_type == "llama"
    assert opened(file)[0].spec.model_type == "qwen2"
    assert not opened(other)[1]


@pytest.mark.parametrize(
    "victim",
    ["entry.json", "model.safetensors", "spec.json", "tokenizer.json", "tokenizer_config.json"],
)
@pytest.mark.parametrize("damage", ["missing", "truncated", "altered"])
def test_damaged_entry_is_rebuilt(
    victim: str, damage: str, gguf_file: Make, cache_dir: Path
) -> None:
    file, model = gguf_file()
    opened(file)
    path = entry_of(cache_dir) / victim
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    checkpoint, converted = opened(file)
    assert converted
    assert torch.equal(checkpoint.weights["lm_head.weight"], model.lm_head.weight)
    assert not opened(file)[1]


def test_large_file_with_a_damaged_header_is_rebuilt(
    gguf_file: Make, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_hashes, "LARGE", 4096)  # tiny weights now count as large
    file, _ = gguf_file()
    opened(file)
    weights = entry_of(cache_dir) / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(b"\xff" * 8 + content[8:])
    assert opened(file)[1]
    assert weights.read_bytes() == content
    assert not opened(file)[1]


def test_leftovers_of_a_killed_process_are_removed(gguf_file: Make, cache_dir: Path) -> None:
    file, _ = gguf_file()
    opened(file)
    entry = entry_of(cache_dir)
    left_over = entry.with_name(f".{entry.name}.tmpkilled")
    left_over.mkdir()
    (left_over / "model.safetensors").write_bytes(b"half")
    (entry / "spec.json").unlink()
    opened(file)
    assert not left_over.exists()


def test_failed_conversion_leaves_the_old_entry(gguf_file: Make, cache_dir: Path) -> None:
    file, _ = gguf_file()
    opened(file)
    before = (entry_of(cache_dir) / "model.safetensors").read_bytes()
    gguf_file(metadata={"llama.expert_count": 2})
    with pytest.raises(ModelError):
        open_checkpoint(str(file))
    assert (entry_of(cache_dir) / "model.safetensors").read_bytes() == before


def test_unwritable_cache_is_one_line(
    gguf_file: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = gguf_file()
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "no-folder"))
    (tmp_path / "no-folder").write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="set MAGICDEC_CACHE_DIR to another folder") as caught:
        open_checkpoint(str(file))
    assert "\n" not in str(caught.value)


def test_full_disk_is_one_line(
    gguf_file: Make, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("magicdec.engine.loading.gguf.file.write_float32", full)
    file, _ = gguf_file()
    with pytest.raises(ModelError, match=r"No space left on device.*make room"):
        open_checkpoint(str(file))
    assert [path for path in (cache_dir / "models").iterdir() if path.is_dir()] == []


def test_cache_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", "~/elsewhere")
    assert cache_root() == Path.home() / "elsewhere"
    monkeypatch.delenv("MAGICDEC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root().name == "magicdec"


OPEN = """
import sys
from magicdec.engine.loading import converted_cache
from magicdec.engine.loading.open import open_checkpoint
heard = []
checkpoint = open_checkpoint(sys.argv[1], lambda what, _share: heard.append(what))
checkpoint.tokenizer.encode("a cat")
norm = checkpoint.weights["model.norm.weight"].sum().item()
converted = any(what.startswith("converting") for what in heard)
print(converted, "transformers" in sys.modules, "gguf" in sys.modules, norm)
"""


def start(file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN, str(file)], stdout=subprocess.PIPE, text=True
    )


def test_two_processes_convert_once_and_the_cached_way_is_light(
    gguf_file: Make, cache_dir: Path
) -> None:
    file, model = gguf_file()
    both = [start(file), start(file)]
    said = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(words[0] for words in said) == ["False", "True"]  # one waited for the other
    norm = model.model.norm.weight.sum().item()
    assert [float(words[3]) for words in said] == pytest.approx([norm, norm])
    entry_of(cache_dir)

    cached = start(file).communicate()[0].split()
    assert cached[:3] == ["False", "False", "False"]


def test_who_converts_is_named_and_not_waited_for_for_ever(
    gguf_file: Make, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, hold: Any
) -> None:
    file, _ = gguf_file()
    opened(file)
    entry = entry_of(cache_dir)
    (entry / "spec.json").unlink()
    heard: list[str] = []
    monkeypatch.setattr(converted_cache, "_PATIENCE", 0.1)
    with hold(converted_cache.lock_path(entry)) as pid, pytest.raises(ModelError) as error:
        open_checkpoint(str(file), lambda what, _share: heard.append(what))
    assert heard == [f"waiting for process {pid}, which is making {entry.name}"]
    assert f"process {pid} has held" in str(error.value) and "\n" not in str(error.value)
    assert error.value.exit_code == 3
    assert opened(file)[1]  # once it has let go


def test_what_another_process_writes_counts_as_getting_on(tmp_path: Path) -> None:
    entry, scratch = tmp_path / "tiny", tmp_path / ".tiny.tmpabc" / "new"
    before = converted_cache._written(entry)
    scratch.mkdir(parents=True)
    (scratch / "model.safetensors").write_bytes(b"half")
    assert converted_cache._written(entry) != before
