"""The default model on a real document: the text is transformers' greedy text, token for token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from magicdec.engine.config import DecodeConfig
from magicdec.engine.selection import SELECTORS
from magicdec.engine.session import open_session
from magicdec.engine.text.documents import read_documents

pytestmark = pytest.mark.slow

NOVEL = Path(__file__).parents[3] / "shared" / "data" / "books" / "dracula.txt"
NEW, CONTEXT = 48, 400


@pytest.fixture(scope="module")
def session():
    return open_session("smollm2-135m")


@pytest.fixture(scope="module")
def requests(session):
    """Five ragged rows: staggered ends of a long document, one of them much shorter."""
    source = str(NOVEL) if NOVEL.exists() else "builtin:pydoc"
    rows = session.requests(read_documents([source]), context=CONTEXT, batch=5)
    short = rows[3].tokens[:70]
    return [*rows[:3], type(rows[3])(rows[3].document, short, 3), rows[4]]


@pytest.fixture(scope="module")
def decode(session, requests):
    def run(batch: int, **settings) -> list[list[int]]:
        config = DecodeConfig(max_new_tokens=NEW, ignore_eos=True, **settings)
        ended = {}
        for event in session.run(requests[:batch], config, batch=batch):
            if type(event).__name__ == "RowFinished":
                ended[event.row] = list(event.token_ids)
        return [ended[row] for row in range(batch)]

    return run


@pytest.fixture(scope="module")
def plain(decode):
    return decode(5, gamma=0)


def test_plain_decoding_equals_transformers(session, requests, plain):
    from magicdec.engine.loading.open import open_checkpoint
    from tests.bench.theirs import transformers_model

    model = transformers_model(open_checkpoint("smollm2-135m"))
    for row in (0, 3):
        ids = torch.tensor([requests[row].tokens])
        out = model.generate(
            ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert plain[row] == out[0, ids.shape[1] :].tolist()


CASES = [
    *[(selector, 4, 64, 5) for selector in SELECTORS.names()],
    *[(selector, 4, 400, 5) for selector in ("snapkv", "streaming", "reuse", "quest")],
    *[(selector, 4, 1000, 5) for selector in ("snapkv", "topk")],
    *[("snapkv", gamma, 64, batch) for gamma, batch in ((1, 1), (1, 3), (7, 5))],
]


@pytest.mark.parametrize("tree,nodes,budget", [("specexec", 12, 64), ("sequoia", 12, 100)])
def test_trees_equal_plain(session, requests, decode, plain, tree, nodes, budget):
    settings = dict(gamma=4, tree=tree, tree_nodes=nodes, budget=budget)
    got = decode(5, **settings)
    verdict = session.check(requests, DecodeConfig(**settings), plain, got)
    assert verdict.identical, verdict.divergences


@pytest.mark.parametrize("selector,gamma,budget,batch", CASES)
def test_speculative_equals_plain(session, requests, decode, plain, selector, gamma, budget, batch):
    got = decode(batch, selector=selector, gamma=gamma, budget=budget)
    verdict = session.check(requests[:batch], DecodeConfig(gamma=gamma), plain[:batch], got)
    assert verdict.identical, verdict.divergences
