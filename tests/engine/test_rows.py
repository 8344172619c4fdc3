"""Rows end at exactly the right token, and ragged batches equal single runs."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

from magicdec.cli.session_api import open_engine
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import ConfigError
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.engine.text.tokenizer import Tokenizer

NEW = 20


@pytest.fixture
def plain(tiny, prompt, decode):
    """Greedy tokens of the 50-token prompt, without any end."""
    return decode(tiny().ours, [prompt(50)], gamma=0, max_new_tokens=NEW, ignore_eos=True).tokens[0]


def test_eos_at_every_offset_of_a_block(tiny, prompt, decode, plain, monkeypatch):
    model = tiny().ours
    for offset, token in enumerate(plain):
        first = plain.index(token)  # an EOS id ends the row where it first appears
        monkeypatch.setitem(vars(model), "spec", _with_eos(model.spec, token))
        for gamma in (0, 3, 7):
            got = decode(model, [prompt(50)], gamma=gamma, selector="full", max_new_tokens=NEW)
            assert got.tokens == [plain[: first + 1]], (offset, gamma)
            assert got.reasons == ["eos"]


def _with_eos(spec, token):
    from dataclasses import replace

    return replace(spec, eos_ids=(token,))


def test_stop_string_at_every_offset_of_a_block(tiny, prompt, decode, plain):
    words = [f"w{t}" for t in plain]
    text = " ".join(words)
    for end in range(1, NEW):
        stop = " ".join(words[max(0, end - 1) : end + 1])  # spans two tokens
        cut = text.index(stop)
        last = next(i for i in range(NEW) if stop in " ".join(words[: i + 1]))
        for gamma in (0, 3, 7):
            got = decode(
                tiny().ours, [prompt(50)], gamma=gamma, selector="full", max_new_tokens=NEW,
                ignore_eos=True, stop=(stop,),
            )  # fmt: skip
            assert got.tokens == [plain[: last + 1]], (stop, gamma)
            assert got.texts == [text[:cut]]
            assert got.reasons == ["stop"]


def test_a_stop_token_at_every_offset_of_a_block(tiny, prompt, decode, plain):
    never = next(token for token in range(128) if token not in plain)
    for token in dict.fromkeys(plain):
        first = plain.index(token)
        for gamma in (0, 3, 7):
            got = decode(
                tiny().ours, [prompt(50)], gamma=gamma, selector="full", max_new_tokens=NEW,
                ignore_eos=True, stop_tokens=(never, token),
            )  # fmt: skip
            assert got.tokens == [plain[: first + 1]], (token, gamma)
            assert got.texts == [" ".join(f"w{t}" for t in plain[:first])]
            assert got.reasons == ["stop"]


def test_a_stop_that_is_a_special_tokens_text_stops_there(prompt):
    backend = Backend(WordLevel({f"w{i}": i for i in range(128)}, unk_token="w0"))
    backend.add_special_tokens(["w7"])  # its text is in no decoded text
    for stop, said in ((("w7",), (3, 7)), (("w", "w7"), (3,)), (("7",), (3, 7, 5, 9))):
        config = DecodeConfig(max_new_tokens=4, stop=stop)
        row = Row(Request("doc", tuple(prompt(5)), 0), 0, config, Tokenizer(backend), ())
        assert row.take([3, 7, 5, 9])[0] == said
        assert row.finish_reason == ("length" if len(said) == 4 else "stop")


@pytest.mark.parametrize("stop", ["\\n", "\\n\\n", "\\t"])
def test_a_stop_that_only_looks_like_a_line_break_is_explained(stop):
    with pytest.raises(ConfigError, match=r"a shell writes those as \$'"):
        DecodeConfig(stop=(stop,))
    DecodeConfig(stop=("\n", "\\nabla"))  # a real one, and TeX


def test_a_stop_token_that_the_model_has_not_is_refused(tiny, prompt, decode):
    with pytest.raises(ConfigError, match="stop-token 128 is beyond the model's vocabulary of 128"):
        decode(tiny().ours, [prompt(9)], gamma=0, max_new_tokens=2, stop_tokens=(128,))


def test_it_is_refused_before_any_weights_are_read(checkpoint, tmp_path):
    (tmp_path / "doc.txt").write_text("a text")
    settings = Settings(model=str(checkpoint), stop_token=(256, 257))
    with pytest.raises(ConfigError, match="stop-token 257 is beyond the model's vocabulary of 257"):
        open_engine([str(tmp_path / "doc.txt")], settings, lambda what, share: None)


@pytest.mark.parametrize("selector", ["full", "window"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 9])
def test_max_new_tokens_is_exact_also_when_gamma_is_larger(
    tiny, prompt, decode, plain, limit, selector
):
    got = decode(
        tiny().ours, [prompt(50), prompt(20)], gamma=7, selector=selector, budget=8,
        max_new_tokens=limit, ignore_eos=True,
    )  # fmt: skip
    assert got.tokens[0] == plain[:limit]
    assert [len(t) for t in got.tokens] == [limit, limit]
    assert got.reasons == ["length", "length"]
    text = "".join(row.text for step in got.steps for row in step.rows if row.row == 0)
    started = next(e for e in got.events if type(e).__name__ == "RowStarted" and e.row == 0)
    assert started.text + text == got.texts[0] == " ".join(f"w{t}" for t in plain[:limit])


def test_a_long_row_beside_short_ones_equals_single_runs(tiny, prompt, decode):
    model = tiny().ours
    prompts = [prompt(300), prompt(5), prompt(6), prompt(7), prompt(8)]
    settings = dict(gamma=3, selector="snapkv", budget=40, max_new_tokens=NEW)
    together = decode(model, prompts, **settings)
    assert together.tokens == [decode(model, [p], **settings).tokens[0] for p in prompts]


def test_waiting_documents_take_the_slots_of_finished_rows(tiny, prompt, decode):
    model = tiny().ours
    prompts = [prompt(10 + 3 * i, seed=i) for i in range(7)]
    settings = dict(gamma=3, selector="streaming", budget=12, max_new_tokens=NEW)
    want = decode(model, prompts, **settings)
    got = decode(model, prompts, slots=2, **settings)
    assert got.tokens == want.tokens
    started = [e.row for e in got.events if type(e).__name__ == "RowStarted"]
    assert sorted(started) == list(range(7))
    assert all(len(step.rows) <= 2 for step in got.steps)


def test_finished_rows_take_no_part_in_later_steps(tiny, prompt, decode, monkeypatch):
    """A finished row's tokens are in no forward: its batch shrinks."""
    model = tiny().ours
    sizes: list[int] = []
    forward = model.forward

    def counting(tokens, kv, **options):
        sizes.append(tokens.shape[0])
        return forward(tokens, kv, **options)

    monkeypatch.setitem(vars(model), "forward", counting)
    got = decode(model, [prompt(20), prompt(21), prompt(22)], gamma=0, max_new_tokens=NEW)
    ends = [len(t) for t in got.tokens]
    decoding = sizes[3:]  # one chunk of prefill each
    assert decoding == [sum(end > step + 1 for end in ends) for step in range(max(ends) - 1)]


def test_events_come_in_order_and_add_up(tiny, prompt, decode):
    got = decode(tiny().ours, [prompt(40), prompt(30)], gamma=2, budget=8, max_new_tokens=NEW)
    names = [type(e).__name__ for e in got.events]
    assert names[-1] == "RunFinished"
    assert names.count("RowStarted") == names.count("RowFinished") == 2
    emitted: dict[int, list[int]] = {0: [], 1: []}
    for event in got.events:
        match type(event).__name__:
            case "RowStarted":
                emitted[event.row].append(event.token)
            case "StepFinished":
                for row in event.rows:
                    emitted[row.row].extend(row.tokens)
    assert [emitted[0], emitted[1]] == got.tokens
    progress = [e for e in got.events if type(e).__name__ == "PrefillProgress"]
    assert progress[-1].done == progress[-1].total == 70
