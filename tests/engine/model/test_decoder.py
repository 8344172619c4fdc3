"""The decoder's logits equal transformers' on tiny random checkpoints of every supported shape."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.errors import ModelError
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.spec import ModelSpec
from magicdec.kernels.backends import backend_names, get_backend

CPU = torch.device("cpu")
ROPES = {
    "default": None,
    "linear": (("rope_type", "linear"), ("factor", 2.0)),
    "dynamic": (("rope_type", "dynamic"), ("factor", 2.0)),
    "llama3": (
        ("rope_type", "llama3"),
        ("factor", 8.0),
        ("low_freq_factor", 1.0),
        ("high_freq_factor", 4.0),
        ("original_max_position_embeddings", 32),
    ),
    "yarn": (
        ("rope_type", "yarn"),
        ("factor", 4.0),
        ("original_max_position_embeddings", 32),
    ),
}
KINDS = ("llama", "mistral", "qwen2", "qwen3")


def tokens(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(3, 128, (1, count), generator=torch.Generator().manual_seed(seed))


def our_logits(model: Decoder, ids: torch.Tensor, *, chunk: int, backend: str) -> torch.Tensor:
    """Logits of every position, fed in chunks of `chunk`."""
    cache = KVCache(model, get_backend(backend, CPU), rows=1, capacity=ids.shape[1])
    cache.prompt_lengths[0] = ids.shape[1]
    parts = []
    for block in ids.split(chunk, dim=1):
        parts.append(model.forward(block, cache.following([0], block.shape[1])))
        cache.advance([0], [block.shape[1]])
    return torch.cat(parts, dim=1)


def assert_same_logits(pair, length: int = 70) -> None:
    ids = tokens(length)
    with torch.inference_mode():
        want = pair.theirs(ids).logits
    for backend in backend_names():
        for chunk in (length, 16, 1):
            got = our_logits(pair.ours, ids, chunk=chunk, backend=backend)
            torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [False, True], ids=["head", "tied"])
def test_every_architecture(tiny, kind, tied):
    assert_same_logits(tiny(kind, tie_word_embeddings=tied))


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7, 8])
def test_every_group_size(tiny, group):
    assert_same_logits(tiny("llama", num_attention_heads=2 * group, hidden_size=32 * group))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rope", ROPES)
def test_every_rope_scaling(tiny, kind, rope):
    assert_same_logits(tiny(kind, rope=ROPES[rope], max_position_embeddings=32))


def test_head_dim_differs_from_hidden_over_heads(tiny):
    pair = tiny("qwen3", head_dim=24)
    assert pair.ours.spec.head_dim != pair.ours.spec.hidden_size // pair.ours.spec.heads
    assert_same_logits(pair)


def test_llama_with_biases(tiny):
    assert_same_logits(tiny("llama", attention_bias=True, mlp_bias=True))


@pytest.mark.parametrize("window", [1, 7, 16, 100])
def test_mistral_sliding_window(tiny, window):
    assert_same_logits(tiny("mistral", sliding_window=window))


def test_qwen2_slides_in_upper_layers_only(tiny):
    pair = tiny("qwen2", use_sliding_window=True, sliding_window=9, max_window_layers=1)
    assert pair.ours.spec.windows == (None, 9)
    assert_same_logits(pair)


def test_dynamic_rope_decodes_as_transformers_generates(tiny):
    """Beyond the trained window each generated token stretches the frequencies further."""
    pair = tiny("llama", rope=ROPES["dynamic"], max_position_embeddings=32)
    ids = tokens(40)
    pair.theirs(tokens(4))  # transformers remembers the longest text until it sees a short one
    want = pair.theirs.generate(
        ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, 40:].tolist()
    cache = KVCache(pair.ours, get_backend("sdpa", CPU), rows=1, capacity=64)
    list(prefill(pair.ours, cache, 0, ids[0].tolist(), chunk=16))
    got = [int(cache.prompts[0].logits.argmax())]
    while len(got) < 12:
        logits = pair.ours.forward(torch.tensor([got[-1:]]), cache.following([0], 1))
        cache.advance([0], [1])
        got.append(int(logits.argmax()))
    assert got == want


def test_ragged_rows_equal_single_rows(tiny):
    model = tiny("mistral", sliding_window=20).ours
    prompts = [tokens(n, seed=n)[0].tolist() for n in (3, 45, 44, 9)]
    new = tokens(20, seed=9).view(4, 5)
    for backend in backend_names():
        batch = KVCache(model, get_backend(backend, CPU), rows=4, capacity=64)
        for slot, prompt in enumerate(prompts):
            list(prefill(model, batch, slot, prompt, chunk=16))
        together = model.forward(new, batch.following(range(4), 5))
        for slot, prompt in enumerate(prompts):
            alone = KVCache(model, get_backend("reference", CPU), rows=1, capacity=64)
            list(prefill(model, alone, 0, prompt, chunk=64))
            single = model.forward(new[slot : slot + 1], alone.following([0], 5))
            torch.testing.assert_close(together[slot : slot + 1], single, rtol=2e-4, atol=2e-4)


def test_missing_and_misshapen_weights_are_named(tiny):
    pair = tiny()
    weights = dict(pair.theirs.state_dict())
    spec = pair.ours.spec
    weights["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 3)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj.*\(3, 3\)"):
        Decoder(spec, weights, device=CPU, dtype=torch.float32)
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ModelError, match=r"no weight 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        Decoder(spec, weights, device=CPU, dtype=torch.float32)


def test_other_architectures_are_refused_with_the_supported_ones():
    from transformers import GPT2Config

    with pytest.raises(ModelError, match=r"gpt2.*llama, mistral, qwen2, qwen3"):
        ModelSpec.from_hf(GPT2Config())


def test_loading_leaves_the_number_of_threads_alone(tiny):
    import threading

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        tiny(seed=99)
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert (torch.get_num_threads(), later) == (3, [3])
    finally:
        torch.set_num_threads(before)
