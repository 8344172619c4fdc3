"""A tiny checkpoint over bytes with a document, and the command line on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from magicdec.cli.main import run_command_line

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
GRID = ("--context", "60,90", "--gamma", "1,3", "--budget", "40", "--max-new-tokens", "12")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a seeded two-layer Llama."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("recorded")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(ALPHABET) + 1, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
        initializer_range=0.2, bos_token_id=None, eos_token_id=len(ALPHABET),
        tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(ALPHABET)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return folder


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a folder of its own, where the commands run without the user's files."""
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "doc.txt"
    path.write_text("All the world is a stage, and all the men and women merely players. " * 8)
    return path


@pytest.fixture
def record(model: Path, document: Path) -> Callable[..., int]:
    """record("-o", FILE, ...): the exit code of a sweep of two contexts and two γ, two rows each.

    Options given later win.
    """

    def run(*arguments: str, grid: tuple[str, ...] = GRID, quiet: bool = True) -> int:
        fixed = ("--model", str(model), "--device", "cpu", "--batch", "2", "--ignore-eos")
        fixed += ("-q",) if quiet else ()
        return run_command_line(
            ["profile", "record", str(document), *fixed, *grid, "--repeat", "2", *arguments]
        )

    return run
