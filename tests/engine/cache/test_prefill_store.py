"""Stored prefills: what is found again, under what it is found, and that it is the same."""

from __future__ import annotations

import itertools

import pytest
import torch

from magicdec.engine.cache.kv import KEPT_QUERIES
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.cache.reuse import BLOCK
from magicdec.engine.loading.weights import identity_of

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def both(cache, length):
    return torch.stack((cache.k[:, 0, :, :length], cache.v[:, 0, :, :length]))


def assert_equals_fresh(run, model, tokens, cache):
    fresh, _ = run(model, tokens, None)
    n = len(tokens)
    torch.testing.assert_close(both(cache, n), both(fresh, n), **CLOSE)
    torch.testing.assert_close(cache.prompts[0].logits, fresh.prompts[0].logits, **CLOSE)
    torch.testing.assert_close(cache.prompts[0].queries, fresh.prompts[0].queries, **CLOSE)


@pytest.mark.parametrize("length", [5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 300])
def test_a_stored_prompt_comes_back_bit_for_bit(tiny, prompt, store, run, length, monkeypatch):
    model = tiny().ours
    computed, reused = run(model, prompt(length), store())
    assert reused == 0
    monkeypatch.setitem(vars(model), "forward", lambda *_, **__: pytest.fail("computed again"))
    read, reused = run(model, prompt(length), store())
    assert reused == length
    assert torch.equal(both(read, length), both(computed, length))
    assert torch.equal(read.prompts[0].queries, computed.prompts[0].queries)
    assert torch.equal(read.prompts[0].logits, computed.prompts[0].logits)
    assert (read.prompts[0].tokens == computed.prompts[0].tokens).all()


def test_a_longer_prompt_uses_the_stored_prefix(tiny, prompt, store, run):
    model, tokens = tiny().ours, prompt(400)
    short, _ = run(model, tokens[:300], store())
    long, reused = run(model, tokens, store())
    assert reused == 2 * BLOCK  # whole blocks
    assert torch.equal(both(long, 2 * BLOCK), both(short, 2 * BLOCK))
    assert_equals_fresh(run, model, tokens, long)


def test_a_shorter_prompt_uses_the_stored_prefix(tiny, prompt, store, run):
    model, tokens = tiny().ours, prompt(400)
    run(model, tokens, store())
    short, reused = run(model, tokens[:300], store())
    assert reused == min(2 * BLOCK, 300 - KEPT_QUERIES)
    assert_equals_fresh(run, model, tokens[:300], short)


def test_a_prompt_that_turns_off_uses_what_is_common(tiny, prompt, store, run):
    model = tiny().ours
    run(model, prompt(400), store())
    question = (*prompt(400)[:290], 5, 6, 7, *prompt(90, seed=1))
    cache, reused = run(model, question, store())
    assert reused == 2 * BLOCK
    assert_equals_fresh(run, model, question, cache)


def test_prompts_that_begin_alike_share_files(tiny, prompt, store, run, cache_dir):
    model = tiny().ours
    for end in (300, 290, 280):
        run(model, prompt(400)[:end], store())
    assert len(list(cache_dir.glob("prefills/*/*.kv"))) == 2 + 3  # two blocks, three ends


def test_more_queries_than_stored_are_computed_and_then_stored(tiny, prompt, store, run):
    model, tokens = tiny().ours, prompt(300)
    run(model, tokens, store())
    _, reused = run(model, tokens, store(), observed=150)
    assert reused == 300 - 150
    assert [run(model, tokens, store(), observed=o)[1] for o in (150, 0)] == [300, 300]


def test_other_weights_dtypes_and_backends_miss(tiny, prompt, store, run):
    model, tokens = tiny().ours, prompt(300)
    run(model, tokens, store())
    assert run(model, tokens, store("other weights"))[1] == 0
    assert run(model, tokens, store(), backend="reference")[1] == 0
    half = cast(tiny(), torch.bfloat16)
    assert run(half, tokens, store())[1] == 0
    assert [run(m, tokens, store())[1] for m in (model, half)] == [300, 300]


def cast(pair, dtype):
    from magicdec.engine.model.decoder import Decoder

    return Decoder(
        pair.ours.spec, pair.theirs.state_dict(), device=torch.device("cpu"), dtype=dtype
    )


def test_weights_are_told_apart(tiny):
    one, other = (tiny(seed=seed) for seed in (0, 1))
    spec, weights = one.ours.spec, one.theirs.state_dict()
    mine = identity_of(spec, weights)
    assert mine == identity_of(spec, dict(reversed(weights.items())))
    assert mine != identity_of(spec, other.theirs.state_dict())
    name = "model.layers.1.mlp.down_proj.weight"
    assert mine != identity_of(spec, {**weights, name: weights[name] * 1.01})
    scaled = {"rope_type": "linear", "factor": 2.0}
    stretched = tiny(rope=tuple(scaled.items())).ours.spec
    assert mine != identity_of(stretched, weights)


def test_dynamic_rope_finds_long_prompts_of_one_length_only(tiny, prompt, store, run):
    rope = (("rope_type", "dynamic"), ("factor", 2.0))
    model, tokens = tiny("llama", rope=rope, max_position_embeddings=280).ours, prompt(400)
    run(model, tokens[:300], store())
    assert run(model, tokens[:300], store())[1] == 300
    assert run(model, tokens[:310], store())[1] == 0
    assert run(model, tokens[:200], store())[1] == 0  # inside the trained window: other K
    assert run(model, tokens[:270], store())[1] == BLOCK


def test_a_broken_off_prefill_of_a_dynamic_model_is_not_mistaken_for_a_short_one(
    tiny, prompt, store, run
):
    rope = (("rope_type", "dynamic"), ("factor", 2.0))
    model, tokens = tiny("llama", rope=rope, max_position_embeddings=280).ours, prompt(400)
    cache, _ = run(model, prompt(3), None)
    part = prefill(model, cache, 0, tokens, chunk=100, store=store())
    assert list(itertools.islice(part, 3))[-1].done == 200
    part.close()
    assert run(model, tokens[:270], store())[1] == 0
    assert run(model, tokens, store())[1] == BLOCK


def test_a_broken_off_prefill_goes_on_where_it_was(tiny, prompt, store, run):
    model, tokens = tiny().ours, prompt(400)
    cache, _ = run(model, prompt(3), None)
    part = prefill(model, cache, 0, tokens, chunk=100, store=store())
    assert list(itertools.islice(part, 4))[-1].done == 300
    part.close()
    whole, reused = run(model, tokens, store())
    assert reused == 2 * BLOCK
    assert_equals_fresh(run, model, tokens, whole)


def test_a_slot_gives_its_prompt_to_the_store_before_it_takes_another(tiny, prompt, store, run):
    model = tiny().ours
    cache, _ = run(model, prompt(300), None)
    list(prefill(model, cache, 0, prompt(200), chunk=100, store=store()))
    assert run(model, prompt(300), store())[1] == 300


def test_a_changed_weights_file_is_another_model(tmp_path, tiny):
    """Also when the change lies between the sampled elements."""
    import os

    from safetensors.torch import save_file

    from magicdec.engine.loading.weights import Weights

    pair, file = tiny(), tmp_path / "model.safetensors"

    def saved(weights, seconds):
        save_file({name: tensor.clone() for name, tensor in weights.items()}, file)
        os.utime(file, (seconds, seconds))
        return identity_of(pair.ours.spec, Weights([file]))

    weights = pair.theirs.state_dict()
    name = "model.embed_tokens.weight"
    changed = weights[name].clone()
    changed.view(-1)[1000] += 1
    assert saved(weights, 10) == saved(weights, 10) != saved({**weights, name: changed}, 11)
