"""Models that nobody vouches for: refused in one line, before anything is made by their sizes."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.errors import ModelError
from magicdec.engine.loading.gguf.kinds import _ITEMS, _KINDS
from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.model.rope import Rope

Save = Callable[..., Path]
Make = Callable[..., tuple[Path, Any]]


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def refused(folder: Path) -> str:
    """The one line that `run` says, exit code 3."""
    with pytest.raises(ModelError) as caught:
        checkpoint = open_checkpoint(str(folder))
        import torch

        Rope(checkpoint.spec, torch.device("cpu"), torch.float32)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500 + len(str(folder))
    return message


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("num_hidden_layers", 10**9, "1000000000"),
        ("num_hidden_layers", 9_999, "lacks tensor 'model.layers.2."),
        ("num_hidden_layers", 10**400, "an integer of 1329 bits"),
        ("num_hidden_layers", "1.0", "'1.0'"),
        ("num_hidden_layers", 1.5, "1.5"),
        ("num_hidden_layers", -1, "-1"),
        ("num_hidden_layers", True, "true"),
        ("hidden_size", 0, "hidden_size = 0"),
        ("vocab_size", [128], "a list of 1 items"),
        ("num_key_value_heads", 3, "4 heads do not share 3 KV heads"),
        ("max_position_embeddings", -5, "-5"),
        ("rms_norm_eps", float("nan"), "rms_norm_eps"),
        ("rms_norm_eps", "small", "rms_norm_eps"),
        ("rope_scaling", "linear", "'linear'"),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 0}, "rope_theta = 0"),
        ("rope_parameters", {"rope_type": "default", "rope_theta": -1}, "rope_theta = -1"),
        ("rope_parameters", {"rope_type": "default", "rope_theta": "1e4"}, "'1e4'"),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 10**400}, "1329 bits"),
        ("rope_parameters", {"rope_type": "linear", "rope_theta": 1e4, "factor": 0}, "factor = 0"),
        (
            "rope_parameters",
            {"rope_type": "yarn", "rope_theta": 1.0, "factor": 2.0},
            "RoPE settings give no usable frequencies",
        ),
    ],
)  # fmt: skip
def test_a_number_that_no_model_has(name: str, value: Any, shown: str, save: Save) -> None:
    folder = save()
    change(folder / "config.json", **{name: value})
    assert shown in refused(folder)


@pytest.mark.parametrize("ids", [[[1]], "1", [1, None], 1.0, [True], {"id": 1}])
def test_ends_that_are_no_tokens(ids: Any, save: Save) -> None:
    folder = save()
    change(folder / "generation_config.json", eos_token_id=ids)
    assert "eos_token_id = " in refused(folder)


@pytest.mark.parametrize(
    "place",
    ["../other.safetensors", "/etc/passwd", "a/../../b", "", 5, ["x"], "a\0b", "x" * 300, "\ud800"],
)
def test_an_index_cannot_leave_its_folder(place: Any, save: Save, tmp_path: Path) -> None:
    folder = save(max_shard_size="20KB")
    index = folder / "model.safetensors.index.json"
    placed = json.loads(index.read_text())["weight_map"]
    name = next(iter(placed))
    (folder / placed[name]).rename(tmp_path / "other.safetensors")
    change(index, weight_map={**placed, name: place})
    assert "weights file" in refused(folder)


def test_a_file_that_cannot_be_read_is_not_missing(save: Save) -> None:
    folder = save()
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    message = refused(folder)
    assert "cannot be read" in message
    assert "missing" not in message


def array_of(count: int, kind: int = 8) -> bytes:
    """A GGUF file that holds one array and says how many values that has."""
    key = b"tokenizer.ggml.tokens"
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key
    return head + struct.pack("<IIQ", 9, kind, count)


@pytest.mark.parametrize(
    "content",
    [
        array_of(2**60),
        array_of(2**60, kind=0),
        array_of(2**63),
        array_of(2**40, kind=9) + struct.pack("<IQ", 9, 2**40) * 400,
        array_of(3)[:-9] + b"\xff" * 9,
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 2**60),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"x" + b"\xff" * 40,
    ],
)
def test_a_gguf_that_says_it_holds_more_than_it_does(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "hostile.gguf"
    file.write_bytes(content)
    asked = [sys.executable, "-m", "magicdec.cli", "run", "builtin:pydoc", "--model", str(file)]
    limited = f"ulimit -v 6000000; exec {' '.join(asked)}"
    assert "is not a complete GGUF file" in refused(file)
    if content == array_of(2**60):  # seconds: one will do
        done = subprocess.run(
            ["bash", "-c", limited], capture_output=True, text=True, timeout=120,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (3, "")
        assert "is not a complete GGUF file" in done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 2**32 - 1),
        ("llama.block_count", 9_999),
        ("llama.attention.head_count", 0),
        ("llama.embedding_length", 0.5),
        ("llama.rope.freq_base", 0.0),
        ("llama.rope.freq_base", float("nan")),
        ("llama.feed_forward_length", float("nan")),
        ("llama.attention.layer_norm_rms_epsilon", float("inf")),
        ("tokenizer.ggml.eos_token_id", "end"),
    ],
)
def test_a_gguf_with_a_number_that_no_model_has(key: str, value: Any, gguf_file: Make) -> None:
    file, _ = gguf_file(metadata={key: value})
    refused(file)


ODD = ["text", 7, 2.5, True, [1, 2], ["a"], [2.5]]


@pytest.mark.parametrize("key", list(_KINDS) + list(_ITEMS))
def test_a_gguf_with_a_value_of_another_kind(key: str, gguf_file: Make) -> None:
    for value in ODD:
        known = value[0] if isinstance(value, list) else value
        if type(known) in (_KINDS | _ITEMS)[key] and isinstance(value, list) == (key in _ITEMS):
            continue
        file, _ = gguf_file(metadata={key: value})
        assert f"{key} = " in refused(file)


@pytest.mark.parametrize(
    "head",
    [
        array_of(2**32, kind=0),
        array_of(2**30),
        array_of(2**30, kind=9),
        b"GGUF" + struct.pack("<IQQ", 3, 2**27, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**27),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**32),
    ],
)
def test_a_gguf_that_is_as_long_as_it_says(head: bytes, tmp_path: Path) -> None:
    """And still holds more than any model: it takes no memory, and no minute."""
    file = tmp_path / "hostile.gguf"
    with file.open("wb") as sparse:
        sparse.write(head)
        sparse.truncate(2**34)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "is not a complete GGUF file" in refused(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


def test_an_unreadable_gguf_is_no_full_disk(gguf_file: Make, monkeypatch: Any) -> None:
    file, _ = gguf_file()
    really = Path.open

    def closed(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.suffix == ".gguf":
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", closed)
    message = refused(file)
    assert "Permission denied" in message
    assert "make room" not in message


def test_a_tokenizer_of_other_ids_than_the_model(save: Save, tmp_path: Path, capsys: Any) -> None:
    folder = save()
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["Ġ"] = 5_000_000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    document = tmp_path / "doc.txt"
    document.write_text("a word and another, " * 20)
    assert (
        run_command_line(
            ["run", str(document), "--model", str(folder), "-q", "--attention", "sdpa"]
        )
        == 3
    )
    assert "token 5,000,000 of 'Ġ'" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[" * 100_000, "{}", '{"model": 5}', "\0", ""])
def test_a_tokenizer_that_is_none(content: str, save: Save) -> None:
    folder = save()
    (folder / "tokenizer.json").write_text(content)
    assert "tokenizer.json cannot be read" in refused(folder)


def chat(folder: Path, tmp_path: Path, capsys: Any) -> tuple[int, str]:
    document = tmp_path / "doc.txt"
    document.write_text("a word and another, " * 20)
    capsys.readouterr()  # what making the model said
    code = run_command_line(
        ["run", str(document), "--model", str(folder), "--prompt", "Why?", "--max-new-tokens", "2",
         "--budget", "8", "--context", "80", "--attention", "sdpa", "-q"]
    )  # fmt: skip
    err = capsys.readouterr().err
    assert code == 0 or err.count("\n") == 1, err
    return code, err


@pytest.mark.parametrize("template", [["plain text"], [1, {"name": "tools"}], {"a": 1}, 7])
def test_a_template_that_is_no_text(template: Any, save: Save, tmp_path: Path, capsys: Any) -> None:
    folder = save()
    change(folder / "tokenizer_config.json", chat_template=template)
    code, err = chat(folder, tmp_path, capsys)
    assert code == 3
    assert "has a chat_template that is" in err


def test_a_template_among_others(save: Save) -> None:
    folder = save()
    templates = ["odd", {"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]
    change(folder / "tokenizer_config.json", chat_template=templates)
    assert open_checkpoint(str(folder)).tokenizer.chat_template == "b"


@pytest.mark.parametrize("kind", ["directory", "latin-1"])
def test_a_template_file_that_cannot_be_read(
    kind: str, save: Save, tmp_path: Path, capsys: Any
) -> None:
    folder = save()
    file = folder / "chat_template.jinja"
    if kind == "directory":
        file.mkdir()
    else:
        file.write_bytes("{{ 'é' }}".encode("latin-1"))
    code, err = chat(folder, tmp_path, capsys)
    assert code == 3
    assert "chat_template.jinja cannot be read" in err


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{% for i in range(9999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "goes on",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails: maximum recursion"),
        ("{{ messages[0].content.nothing.at_all() }}", "fails"),
        ("{{ 1 / 0 }}", "fails: division by zero"),
        ("{% raise %}", "fails"),
    ],
)
def test_a_template_that_does_not_end_well(
    template: str, said: str, save: Save, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("magicdec.engine.text.framing.RENDER_SECONDS", 1.0)
    folder = save()
    (folder / "chat_template.jinja").write_text(template)
    code, err = chat(folder, tmp_path, capsys)
    assert code == 2
    assert f"the model's chat template {said}" in err
    assert "use --raw" in err


def test_a_library_that_panics_is_one_line(save: Save) -> None:
    class Panic(BaseException):
        """As Rust's panics arrive in Python."""

    def panic(*_: Any, **options: Any) -> None:
        raise Panic("index out of bounds")

    folder = save()
    checkpoint = open_checkpoint(str(folder))

    class Broken:
        encode = decode = panic

    checkpoint.tokenizer.backend = Broken()  # type: ignore[assignment]
    for use in (lambda: checkpoint.tokenizer.encode("a"), lambda: checkpoint.tokenizer.decode([1])):
        with pytest.raises(ModelError, match=r"tokenizer cannot be used .index out of bounds"):
            use()


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json",
     "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["endless", "pipe", "huge"])
def test_a_file_that_never_ends_or_never_answers(name: str, kind: str, save: Save) -> None:
    folder = save()
    file = folder / name
    if name.endswith("index.json"):
        (folder / "model.safetensors").unlink()
    file.unlink(missing_ok=True)
    match kind:
        case "endless":
            file.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(file)
        case "huge":
            with file.open("wb") as sparse:
                sparse.truncate(2**40)
    message = refused(folder)
    said = {"endless": "is a device", "pipe": "is a pipe", "huge": "has 1,099,511,627,776 bytes"}
    assert said[kind] in message or (kind, name) == ("huge", "model.safetensors")


def test_a_vocabulary_to_be_converted_that_never_ends(save: Save) -> None:
    folder = save()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text("{}")
    (folder / "merges.txt").symlink_to("/dev/zero")
    assert "merges.txt is a device" in refused(folder)


def test_a_model_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    assert "is a pipe" in refused(tmp_path / "model.gguf")
