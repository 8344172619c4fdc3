"""The engine on a CUDA device. Where there is none, these tests skip and say so."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.compare.lossless import compare
from magicdec.engine.config import DecodeConfig
from magicdec.engine.engine import Engine
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.request import Request
from magicdec.engine.selection import SELECTORS
from magicdec.kernels.backends import get_backend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def tokens_of(events) -> list[list[int]]:
    ended = {e.row: list(e.token_ids) for e in events if type(e).__name__ == "RowFinished"}
    return [ended[row] for row in sorted(ended)]


@pytest.fixture(params=["float32", "bfloat16"])
def model(request, tiny):
    pair = tiny()
    return Decoder(
        pair.ours.spec,
        pair.theirs.state_dict(),
        device=torch.device("cuda"),
        dtype=getattr(torch, request.param),
    )


@pytest.mark.parametrize("selector", SELECTORS.names())
def test_speculative_equals_plain_or_ties(model, tokenizer, prompt, selector):
    backend = get_backend("auto", model.device)
    engine = Engine(model, tokenizer, backend, slots=3, capacity=120)
    requests = [Request("d", prompt(n), i) for i, n in enumerate((60, 25, 50))]
    settings = dict(max_new_tokens=24, ignore_eos=True, selector=selector, budget=40)
    plain = tokens_of(engine.run(requests, DecodeConfig(gamma=0, **settings)))
    got = tokens_of(engine.run(requests, DecodeConfig(gamma=4, **settings)))
    verdict = compare(model, backend, requests, plain, got, width=5)
    assert verdict.ok
    if model.dtype is torch.float32:
        assert verdict.identical


def test_a_step_waits_for_the_device_once(tiny, tokenizer, prompt):
    """Drafting and verifying are queued without a wait; only the results are read back."""
    pair = tiny()
    model = Decoder(
        pair.ours.spec, pair.theirs.state_dict(), device=torch.device("cuda"), dtype=torch.float32
    )
    engine = Engine(model, tokenizer, get_backend("auto", model.device), slots=1, capacity=120)
    run = engine.run(
        [Request("d", prompt(60), 0)],
        DecodeConfig(max_new_tokens=40, ignore_eos=True, budget=40, gamma=4),
    )
    for event in run:
        if type(event).__name__ == "StepFinished":
            break
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchroniz") as waits:
            next(event for event in run if type(event).__name__ == "StepFinished")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1
