"""Which tokens end a turn: of GGUF files as llama.cpp decides, of folders as transformers does.

The expected ids of the GGUF files are those for which a llama.cpp of 2026-10 says is_eog.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from magicdec.engine.config import DecodeConfig
from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.session import open_session
from magicdec.engine.text.documents import Document

Make = Callable[..., Any]


@pytest.fixture
def added(vocabulary: list[str]) -> Make:
    """Metadata of the tiny vocabulary with more tokens; the files' own </s> is `end`."""

    def make(*texts: str, kind: int = 3, **ids: int | None) -> dict[str, Any]:
        tokens = ["end" if token == "</s>" else token for token in vocabulary]
        named = {"eos": 0, "eot": None} | ids
        return {
            "tokenizer.ggml.tokens": [*tokens, *texts],
            "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3) + [kind] * len(texts),
            **{f"tokenizer.ggml.{name}_token_id": id for name, id in named.items()},
        }

    return make


@pytest.mark.parametrize(
    ("texts", "ids", "expected"),
    [
        ((), {}, {"<s>"}),
        (("<|im_end|>",), {}, {"<s>", "<|im_end|>"}),
        (("<|im_end|>", "</s>", "<|im_start|>"), {}, {"<s>", "<|im_end|>", "</s>"}),
        (("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"), {"eos": 1},
         {"end", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}),
        ((), {"eos": 1, "eot": 2, "eom": 9}, {"end", "<|turn|>", 9}),
        ((), {"fim_pad": 9, "fim_rep": 10, "fim_sep": 11}, {"<s>", 9, 10, 11}),
        (("<reponame>", "<|file_sep|>", "<fim_pad>"), {},
         {"<s>", "<reponame>", "<|file_sep|>", "<fim_pad>"}),
        ((), {"eos": 1, "eot": 999_999}, {"end"}),  # of no token: nothing to stop at
        (("<|end|>", "<|return|>", "<|call|>"), {}, {"<s>", "<|return|>", "<|call|>"}),
        (("<|end|>", "<|return|>"), {}, {"<s>", "<|return|>", "<|end|>"}),
        (("<|tool_response>", "</s>"), {}, {"<s>", "<|tool_response>"}),
        (("<｜end▁of▁sentence｜>",), {}, {"<s>", "<｜end▁of▁sentence｜>"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [3, 1])  # control, or mislabelled as text
def test_ends_of_a_gguf_file(
    texts: tuple[str, ...], ids: dict[str, int], expected: set[str | int], kind: int,
    gguf_file: Make, added: Make,
) -> None:  # fmt: skip
    metadata = added(*texts, kind=kind, **ids)
    tokens = metadata["tokenizer.ggml.tokens"]
    file, _ = gguf_file(metadata=metadata, vocab_size=len(tokens))
    found = open_checkpoint(str(file)).spec.eos_ids
    assert {id if id in expected else tokens[id] for id in found} == expected
    assert len(found) == len(expected)


def test_a_conversion_of_before_knows_the_ends_too(
    gguf_file: Make, cache_dir: Path, added: Make, vocabulary: list[str]
) -> None:
    """Entries in the cache name only what metadata named; they are not made anew for it."""
    from magicdec.engine.loading import converted_cache

    metadata = added("<|im_end|>")
    file, _ = gguf_file(metadata=metadata, vocab_size=len(vocabulary) + 1)
    open_checkpoint(str(file))
    (entry,) = (path for path in (cache_dir / "models").iterdir() if path.is_dir())
    made = (entry / "model.safetensors").stat().st_ino
    assert json.loads((entry / converted_cache.SPEC).read_text())["eos_ids"] == [0]
    assert open_checkpoint(str(file)).spec.eos_ids == (0, len(vocabulary))
    assert (entry / "model.safetensors").stat().st_ino == made


def test_a_sentencepiece_file_that_names_no_end_has_the_second_token(gguf_file: Make) -> None:
    pieces = ["<unk>", "<s>", "stop", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 2,
        "tokenizer.ggml.scores": [0.0] * 261,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": None,
        "tokenizer.ggml.eot_token_id": None,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    file, _ = gguf_file(metadata=metadata, vocab_size=len(pieces))
    assert open_checkpoint(str(file)).spec.eos_ids == (2,)


def decoded(model: Path, **settings: Any) -> Any:
    """What a greedy run says after one short document: its RowFinished."""
    session = open_session(str(model), device="cpu", attention="sdpa")
    document = Document("doc", "some text to go on from, and so on", ())
    requests = session.requests([document], context=None, batch=1)
    config = DecodeConfig(max_new_tokens=24, draft_weights="same", **settings)
    session.plan_memory(requests, config, 1)
    events = list(session.run(requests, config, batch=1))
    return next(e for e in events if type(e).__name__ == "RowFinished")


@pytest.mark.parametrize("gamma", [0, 3])
def test_a_row_ends_with_the_turn(
    gamma: int, gguf_file: Make, added: Make, vocabulary: list[str]
) -> None:
    """The model ends its turn with <|im_end|>, while its file only names another end."""
    metadata, end = added("<|im_end|>"), len(vocabulary)
    plain, model = gguf_file(metadata=metadata, vocab_size=end + 1, name="plain")
    said = list(decoded(plain, gamma=0).token_ids)
    assert len(said) == 24 and end not in said
    at = next(i for i in range(3, 24) if said[i] not in said[:i])
    # The same model, but there it says <|im_end|> instead.
    head = model.lm_head.weight.detach().numpy().copy()
    head[[end, said[at]]] = head[[said[at], end]]
    file, _ = gguf_file(metadata=metadata, tensors={"output.weight": head}, vocab_size=end + 1)
    row = decoded(file, gamma=gamma)
    assert row.token_ids == (*said[:at], end)
    assert row.finish_reason == "eos"
    assert "im_end" not in row.text
    longer = decoded(file, gamma=gamma, ignore_eos=True)
    assert (len(longer.token_ids), longer.finish_reason) == (24, "length")


@pytest.mark.parametrize("gamma", [0, 3])
def test_every_end_of_a_folder_ends_a_row_where_transformers_ends(
    gamma: int, save: Callable[..., Path]
) -> None:
    folder = save()
    session = open_session(str(folder), device="cpu", attention="sdpa")
    text = Document("doc", "some text to go on from, and so on", ())
    prompt = torch.tensor([session.requests([text], context=None, batch=1)[0].tokens])
    said = list(decoded(folder, gamma=0, ignore_eos=True).token_ids)
    new = [token for i, token in enumerate(said) if i > 1 and token not in said[:i]]
    file = folder / "generation_config.json"
    given = json.loads(file.read_text())
    for ends in (new[0], [new[1]], [1, new[2]], [new[3], new[1], new[2]]):
        file.write_text(json.dumps(given | {"eos_token_id": ends}))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        whole = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False
        )
        row = decoded(folder, gamma=gamma)
        assert list(row.token_ids) == whole[0, prompt.shape[1] :].tolist()
        assert len(row.token_ids) < 24
        assert row.finish_reason == "eos"
