"""An int8 twin drafts: cheaper, never decisive."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.drafters.base import draft_weights
from magicdec.engine.errors import ConfigError
from magicdec.engine.memory.plan import forecast
from magicdec.engine.memory.run_shape import RunShape
from magicdec.engine.selection import SELECTORS
from magicdec.kernels.linear import Int8Linear, fbgemm, int8_unsupported

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(
    bool(int8_unsupported(CPU, torch.float32)), reason="this CPU has no int8 kernels"
)
PROMPTS = {1: (50,), 3: (50, 7, 33)}  # by batch; 3 is ragged
NEW = 24


def int8(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Int8Linear:
    with fbgemm():
        return Int8Linear(weight, bias)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).norm() / want.norm())


@pytest.mark.parametrize("rows", [1, 4, 8])
@pytest.mark.parametrize("shape", [(96, 64), (960, 576), (576, 1536)], ids=str)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias"])
def test_close_to_the_float_product(shape, rows, biased):
    torch.manual_seed(0)
    # Channels of very different size: a scale per tensor would lose the small ones.
    weight = torch.randn(*shape) * torch.logspace(-3, 1, shape[0])[:, None]
    bias = torch.randn(shape[0]) if biased else None
    x = torch.randn(rows, 1, shape[1])
    got = int8(weight, bias)(x)
    want = torch.nn.functional.linear(x, weight, bias)
    assert got.shape == want.shape and got.dtype is torch.float32
    assert relative_error(got, want) < 0.03
    small = shape[0] // 4
    if bias is None:
        assert relative_error(got[..., :small], want[..., :small]) < 0.03


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias"])
def test_a_token_is_rounded_as_if_it_were_alone(biased):
    """Rows and positions of other ranges cost no precision and change no bit of it."""
    torch.manual_seed(0)
    bias = torch.randn(200) if biased else None
    layer = int8(torch.randn(200, 256), bias)
    x = torch.randn(2, 32, 256) * torch.linspace(0.1, 30, 64).view(2, 32, 1)
    x += torch.linspace(-4, 4, 32)[torch.randperm(32), None]
    some = torch.cat([layer(tokens) for tokens in x.flatten(0, 1).split(2)]).view(2, 32, 200)
    assert torch.equal(layer(x), some)
    exact = torch.nn.functional.linear(x, layer_weight(layer), bias)
    alone = torch.stack([layer(token[None])[0] for token in x.flatten(0, 1)]).view(2, 32, 200)
    assert relative_error(layer(x), exact) < 1.1 * relative_error(alone, exact) < 0.01


def layer_weight(layer: Int8Linear) -> torch.Tensor:
    """As it was rounded, so that only the activations' rounding is left."""
    return torch.ops.quantized.linear_unpack(layer._packed)[0].dequantize()


def test_no_sum_overflows():
    """All factors at their largest, the case in which 8 by 8 bits overflow 16."""
    weight, x = torch.ones(32, 256), torch.ones(2, 256)
    x[:, 1::2] = torch.linspace(0.9, 1.0, 128)
    torch.testing.assert_close(int8(weight)(x), x @ weight.T, rtol=0.01, atol=0.0)


def test_a_channel_of_zeros_stays_zero():
    weight = torch.randn(8, 16)
    weight[3] = 0
    assert torch.equal(int8(weight)(torch.randn(2, 16))[:, 3], torch.zeros(2))


def test_the_process_keeps_its_quantisation_engine():
    before = torch.backends.quantized.engine
    with fbgemm():
        assert torch.backends.quantized.engine == "fbgemm"
    assert torch.backends.quantized.engine == before


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True], ids=["head", "tied"])
def test_the_twin_predicts_what_the_model_does(tiny, prompt, decode, kind, tied):
    """With the whole cache in view only the rounding of the weights is left to be rejected."""
    model = tiny(kind, tie_word_embeddings=tied).ours
    got = decode(
        model, [prompt(40), prompt(20)], gamma=3, selector="full", draft_weights="int8",
        max_new_tokens=48, ignore_eos=True,
    )  # fmt: skip
    rows = [row for step in got.steps for row in step.rows]
    rate = sum(r.accepted for r in rows) / sum(r.drafted for r in rows)
    assert rate > 0.7


def test_the_twin_is_made_once_and_is_small(tiny):
    model = tiny(seed=3).ours
    assert model.twin_bytes == 0
    twin = model.quantized
    assert model.quantized is twin and twin.spec is model.spec and twin.rope is model.rope
    assert 0 < model.twin_bytes == twin.streamed_bytes < model.streamed_bytes / 3


@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("batch", PROMPTS)
@pytest.mark.parametrize("selector", SELECTORS.names())
def test_greedy_is_lossless(tiny, prompt, decode, selector, batch, gamma):
    prompts = [prompt(n, seed=i) for i, n in enumerate(PROMPTS[batch])]
    settings = dict(budget=12, selector=selector, max_new_tokens=NEW, ignore_eos=True)
    plain = decode(tiny().ours, prompts, gamma=0, **settings)
    got = decode(tiny().ours, prompts, gamma=gamma, draft_weights="int8", **settings)
    assert got.tokens == plain.tokens


def test_sampling_keeps_the_distribution(tiny, prompt, decode):
    """Pairs of tokens after the first: speculative rows' counts equal plain rows'."""
    model = tiny("llama", initializer_range=0.05).ours

    def tokens(gamma: int, seed: int) -> np.ndarray:
        rows = decode(
            model, [prompt(12)] * 1000, gamma=gamma, draft_weights="int8", max_new_tokens=3,
            ignore_eos=True, selector="window", budget=2,
            sampling=SamplingConfig(temperature=0.5, top_k=3, seed=seed),
        )  # fmt: skip
        return np.array(rows.tokens)

    plain, speculative = tokens(0, 1), tokens(2, 2)
    for column in (1, 2):
        values = np.union1d(plain[:, column], speculative[:, column])
        table = np.array(
            [[(rows[:, column] == v).sum() for v in values] for rows in (plain, speculative)]
        )
        assert chi2_contingency(table[:, table.sum(axis=0) >= 10]).pvalue > 1e-3


def test_auto_takes_int8_where_it_works_and_never_without_drafts():
    auto, plain = DecodeConfig(), DecodeConfig(gamma=0, draft_weights="int8")
    assert draft_weights(auto, CPU, torch.float32) == "int8"
    assert draft_weights(auto, CPU, torch.bfloat16) == "same"
    assert draft_weights(auto, torch.device("cuda"), torch.bfloat16) == "same"
    assert draft_weights(plain, CPU, torch.float32) == "same"
    assert draft_weights(DecodeConfig(selector="full"), CPU, torch.float32) == "same"
    same = DecodeConfig(draft_weights="same")
    assert draft_weights(same, CPU, torch.float32) == "same"


def test_auto_drafts_with_int8_except_for_the_control_and_for_sampling():
    def chosen(**settings) -> str:
        return draft_weights(DecodeConfig(**settings), CPU, torch.float32)

    sampling = SamplingConfig(temperature=0.7)
    assert chosen() == "int8"
    assert chosen(gamma=0) == chosen(selector="full") == chosen(sampling=sampling) == "same"
    assert chosen(sampling=sampling, draft_weights="int8") == "int8"


@pytest.mark.parametrize(
    ("device", "dtype"), [("cuda", torch.bfloat16), ("cuda", torch.float32), ("cpu", torch.float16)]
)
def test_int8_is_refused_where_it_does_not_work(device, dtype):
    with pytest.raises(ConfigError, match=r"int8 weights need float32 on a CPU.*weights same"):
        draft_weights(DecodeConfig(draft_weights="int8"), torch.device(device), dtype)
    with pytest.raises(ValueError, match="int8 weights need"):
        Int8Linear(torch.zeros(2, 2, dtype=torch.float16))


def test_the_forecast_includes_the_twin(tiny):
    model = tiny().ours

    def need(weights: str, gamma: int = 3) -> int:
        config = DecodeConfig(draft_weights=weights, gamma=gamma)
        run = RunShape(model.spec, config, 1, 50, 32, torch.float32, torch.float32, CPU)
        return forecast(run, 1 << 40).draft_weights

    assert need("same") == need("int8", gamma=0) == 0
    scales = 4 * model.spec.vocab_size * 8  # generous
    assert need("int8") <= model.quantized.streamed_bytes <= need("int8") + scales


def test_an_unknown_choice_is_refused():
    with pytest.raises(ConfigError, match=r"draft-weights must be auto, same or int8, got 'int4'"):
        DecodeConfig(draft_weights="int4")  # type: ignore[arg-type]


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias"])
def test_positions_of_one_pass_are_rounded_like_passes_of_their_own(biased):
    """One position is a thousand times the others: on a shared scale it would erase them."""
    torch.manual_seed(0)
    weight, bias = torch.randn(32, 64), torch.randn(32) if biased else None
    x = torch.randn(3, 4, 64)
    x[:, 2] *= 1000
    linear = int8(weight, bias)
    together = linear(x)
    for position in range(4):
        alone, exact = linear(x[:, position : position + 1])[:, 0], x[:, position] @ weight.T
        exact = exact if bias is None else exact + bias
        assert relative_error(together[:, position], exact) < 0.03
        assert relative_error(together[:, position], alone) < 0.03
    assert torch.isfinite(linear(torch.zeros(2, 3, 64))).all()
