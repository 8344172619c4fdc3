"""Truncations and bit flips of every kind of file that is read or kept, seeded, in bounded time.

Whatever a file holds, a command gives its answer, or one line and a documented exit code: never a
traceback, and of a file that this program keeps never another text.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.loading import file_hashes

Make = Callable[..., tuple[Path, Any]]
Ask = Callable[..., tuple[int, str]]
CASES = 12  # of each file; a case takes a tenth of a second
NOT_FINITE = "computes logits that are not finite"
LINE = re.compile(r"(magicdec|warning|note): \S.*")


def damages(content: bytes, name: str, cases: int = CASES) -> Iterator[bytes]:
    """Some truncations and some flips of few bits, more of them at the beginning."""
    rng = random.Random(f"{name} {len(content)}")
    for case in range(cases):
        if case % 3 == 0:
            yield content[: rng.choice([0, 1, len(content) - 1, rng.randrange(len(content))])]
            continue
        damaged = bytearray(content)
        within = min(len(content), rng.choice([64, 1024, len(content)]))
        for _ in range(rng.choice([1, 1, 8])):
            damaged[rng.randrange(within)] ^= 1 << rng.randrange(8)
        yield bytes(damaged)


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "doc.txt"
    path.write_text("13 cats sat there. " * 40)
    return path


@pytest.fixture
def ask(capfd: Any, document: Path) -> Ask:
    """Runs a command: its exit code and what it said on stdout."""

    def run(*arguments: str, codes: tuple[int, ...], notes: bool = False) -> tuple[int, str]:
        capfd.readouterr()
        code = run_command_line(arguments)
        out, err = capfd.readouterr()
        told = [line for line in err.splitlines() if line.startswith("magicdec: ")]
        assert code in codes, (code, err)
        assert notes or all(LINE.fullmatch(line) for line in err.splitlines()), err
        assert "Traceback" not in err, err
        assert len(told) == (code != 0), err
        assert "-v shows where" not in err, "a raw error"
        assert code != 1 or NOT_FINITE in err, err
        return code, out

    return run


def decoding(model: Path, *more: str) -> tuple[str, ...]:
    return (
        "run", "doc.txt", "--model", str(model), "--max-new-tokens", "6", "--budget", "16",
        "--context", "140", "--gamma", "2", "--attention", "sdpa", "-q", "--json", *more,
    )  # fmt: skip


def text(out: str) -> str:
    found = re.search(r'"text": (".*")', out)
    assert found is not None, out
    return found[1]


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_gguf(architecture: str, gguf_file: Make, ask: Ask) -> None:
    file, _ = gguf_file(architecture)
    right = file.read_bytes()
    for damaged in damages(right, "gguf", 2 * CASES):
        file.write_bytes(damaged)
        ask(*decoding(file, "--no-prefill-cache"), codes=(0, 1, 3))


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors", "config.json", "generation_config.json", "tokenizer.json",
        "tokenizer_config.json",
    ],
)  # fmt: skip
def test_a_model_folder(name: str, save: Callable[..., Path], ask: Ask) -> None:
    folder = save()
    file = folder / name
    for damaged in damages(file.read_bytes(), name):
        file.write_bytes(damaged)
        ask(*decoding(folder, "--no-prefill-cache", "--prompt", "Why?"), codes=(0, 1, 3))


def test_an_index(save: Callable[..., Path], ask: Ask) -> None:
    folder = save(max_shard_size="20KB")
    file = folder / "model.safetensors.index.json"
    for damaged in damages(file.read_bytes(), file.name):
        file.write_bytes(damaged)
        ask(*decoding(folder, "--no-prefill-cache"), codes=(0, 3))


@pytest.mark.parametrize("large", [False, True])
def test_a_converted_model(
    large: bool, gguf_file: Make, cache_dir: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right text, or, where checking takes time, a line once and the right text then."""
    if large:
        monkeypatch.setattr(file_hashes, "LARGE", 65536)
    file, _ = gguf_file()
    asked = decoding(file, "--no-prefill-cache")
    _, out = ask(*asked, codes=(0,))
    right = text(out)
    (entry,) = (path for path in (cache_dir / "models").iterdir() if path.is_dir())
    for kept in sorted(path.name for path in entry.iterdir()):
        for damaged in damages((entry / kept).read_bytes(), kept, CASES // 2):
            (entry / kept).write_bytes(damaged)
            code, out = ask(*asked, codes=(0, 3) if large else (0,))
            if code == 3:
                assert out == ""
                _, out = ask(*asked, codes=(0,))
            assert text(out) == right


def test_a_prefill(save: Callable[..., Path], cache_dir: Path, ask: Ask) -> None:
    folder = save()
    _, out = ask(*decoding(folder), codes=(0,))
    right, files = text(out), sorted(cache_dir.glob("prefills/*/*"))
    assert len(files) >= 3
    for file in files:
        for damaged in damages(file.read_bytes(), file.suffix, CASES // 2):
            file.write_bytes(damaged)
            _, out = ask(*decoding(folder), codes=(0,))
            assert text(out) == right


def test_a_calibration(ask: Ask) -> None:
    from magicdec.profiles.calibration.calibration import Accepted, Calibration, Selection
    from magicdec.profiles.calibration.store import known_here, save_calibration
    from magicdec.profiles.costs.catalog import find_model
    from magicdec.profiles.costs.hardware import Constants, Device, Hardware

    mark = {
        "model": "smollm2-135m", "parameters": 162_791_424, "dtype": "float32",
        "kv_dtype": "float32", "device": "cpu", "device_name": "Some CPU", "threads": 2,
        "attention": "native", "magicdec": "0.1.0", "torch": "2.13.0",
    }  # fmt: skip
    constants = Constants(
        layer_s=3e-4, bandwidth_efficiency=0.8, gemm_efficiency=0.5, attention_efficiency=0.4,
        overlap=2.0, step_s=1e-3,
    )  # fmt: skip
    file = save_calibration(
        Calibration(
            created="2026-11-29T10:00:00+00:00",
            fingerprint={**mark, **known_here()},
            model=find_model("smollm2-135m"),
            hardware=Hardware(
                Device("Some CPU", 8e9, 20e9, 200e9), constants=constants, by_weights={},
                provenance="made by hand",
            ),
            selections=(Selection("snapkv", 0.01, 4e-5),),
            acceptances=(Accepted("snapkv", 256, "int8", 300, (0.9, 0.8)),),
            residuals=(),
        )
    )  # fmt: skip
    asked = ("predict", "--batch", "2", "--context", "1000", "--format", "json")
    right = file.read_bytes()
    ask(*asked, codes=(0,))
    for damaged in damages(right, "calibration", 2 * CASES):
        file.write_bytes(damaged)
        ask(*asked, codes=(0, 2))
        ask("cache", "list", codes=(0,))


def test_a_profile(ask: Ask, tmp_path: Path) -> None:
    right = (Path(__file__).parents[3] / "examples" / "profile-xeon-2-cores.jsonl").read_bytes()
    file = tmp_path / "profile.jsonl"
    for damaged in damages(right, "profile", 2 * CASES):
        file.write_bytes(damaged)
        ask("profile", "show", str(file), codes=(0, 2))
        ask("profile", "export", str(file), "--to", "magicdec", codes=(0, 1, 2), notes=True)


def test_a_configuration(ask: Ask, tmp_path: Path) -> None:
    right = b'gamma = 3\nbudget = 128 # few\nselector = "snapkv"\nstop = ["a", "b"]\n'
    right += b"temperature = 0.5\n[selector-option]\nwindow = 16\n"
    for damaged in damages(right, "configuration", 4 * CASES):
        (tmp_path / "magicdec.toml").write_bytes(damaged)
        ask("config", "show", "--format", "csv", codes=(0, 2))


def test_values_of_a_configuration(save: Callable[..., Path], ask: Ask) -> None:
    """Every member as what it is not: a model that runs, or one line. Values, not bits."""
    folder = save()
    path = folder / "config.json"
    config = json.loads(path.read_text())
    hints = ["rope_theta", "rope_scaling", "sliding_window", "layer_types", "head_dim", "is_causal"]
    members = sorted({*config, *hints, "quantization_config", "partial_rotary_factor"})
    values = ["1.0", None, [], {}, [1], True, 0, -1, 1.5, math.inf, math.nan, 10**30, "9" * 999]
    rng = random.Random(15)
    for _ in range(4 * CASES):
        path.write_text(json.dumps({**config, rng.choice(members): rng.choice(values)}))
        ask(*decoding(folder, "--no-prefill-cache"), codes=(0, 1, 3), notes=True)
