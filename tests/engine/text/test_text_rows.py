"""Documents to rows: sizes, staggering, windows, prompts and chat templates."""

from __future__ import annotations

import pytest

from magicdec.engine.errors import ConfigError
from magicdec.engine.request import Request
from magicdec.engine.text.documents import Document
from magicdec.engine.text.prompts import build_rows
from magicdec.engine.text.tokenizer import Tokenizer

TEXT = "".join(f"The other house {i} stood at the end of the street.\n" for i in range(200))
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INST = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] | trim }} [/INST]{% endfor %}"
TWICE = "{{ messages[0]['content'] }}{{ messages[0]['content'] }}"
REFUSING = "{{ raise_exception('no system role') }}"


@pytest.fixture
def tokenizer(tokenizers_by_kind) -> Tokenizer:
    return tokenizers_by_kind("gpt2")


@pytest.fixture
def document() -> Document:
    return Document("a.txt", TEXT)


def with_template(tokenizer: Tokenizer, template: str) -> Tokenizer:
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    return Tokenizer(tokenizer.backend, chat_template=template, special_text=special)


def sizes(requests: list[Request]) -> list[int]:
    return [len(request.tokens) for request in requests]


def names(requests: list[Request]) -> list[str]:
    return [request.document for request in requests]


def refusal(*arguments: object, **settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        build_rows(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_whole_document_without_a_context(tokenizer, document):
    assert build_rows([document], tokenizer) == [
        Request("a.txt", tuple(tokenizer.encode(TEXT)), row=0)
    ]


@pytest.mark.parametrize("take", ["head", "tail"])
def test_context_counts_bos(tokenizer, document, take):
    tokenizer = Tokenizer(tokenizer.backend, bos_id=0)
    [request] = build_rows([document], tokenizer, context=100, take=take)
    ids = tokenizer.encode(TEXT)
    assert request.tokens == (0, *(ids[:99] if take == "head" else ids[-99:]))
    assert request.document == "a.txt"


def test_a_short_document_is_used_whole(tokenizer):
    [request] = build_rows([Document("s.txt", "the end")], tokenizer, context=4000)
    assert request == Request("s.txt", tuple(tokenizer.encode("the end")), row=0)


def test_staggered_rows_are_prefixes_of_the_first(tokenizer, document):
    requests = build_rows([document], tokenizer, context=640, batch=4)
    assert sizes(requests) == [640, 620, 600, 580]
    assert names(requests) == ["a.txt", "a.txt[:620]", "a.txt[:600]", "a.txt[:580]"]
    assert [request.row for request in requests] == [0, 1, 2, 3]
    for request in requests:
        assert request.tokens == requests[0].tokens[: len(request.tokens)]


def test_the_tail_is_staggered_at_its_end(tokenizer, document):
    requests = build_rows([document], tokenizer, context=640, batch=3, take="tail")
    ids = tokenizer.encode(TEXT)
    assert requests[0].tokens == tuple(ids[-640:])
    assert requests[2].tokens == tuple(ids[-640:-40])
    assert names(requests) == ["a.txt", "a.txt[-640:-20]", "a.txt[-640:-40]"]


def test_documents_take_turns(tokenizer, document):
    short = Document("b.txt", TEXT[:1000])
    length = len(tokenizer.encode(short.text))
    requests = build_rows([document, short], tokenizer, context=640, batch=5)
    stride = length // 32
    assert sizes(requests) == [640, length, 620, length - stride, 600]
    assert names(requests) == [
        "a.txt",
        "b.txt",
        "a.txt[:620]",
        f"b.txt[:{length - stride}]",
        "a.txt[:600]",
    ]


def test_more_documents_than_rows_all_get_one(tokenizer):
    documents = [Document(f"{i}.txt", TEXT[i:]) for i in range(5)]
    requests = build_rows(documents, tokenizer, context=50, batch=2)
    assert names(requests) == [f"{i}.txt" for i in range(5)]
    assert [r.tokens for r in requests] == [
        tuple(tokenizer.encode(TEXT[i:])[:50]) for i in range(5)
    ]


@pytest.mark.parametrize("context", [100, 101, 128, 640])
@pytest.mark.parametrize("batch", [2, 16, 33, 100])
def test_rows_are_distinct_and_near_the_context(tokenizer, document, context, batch):
    found = sizes(build_rows([document], tokenizer, context=context, batch=batch))
    assert found[0] == context
    assert len(set(found)) == batch
    assert min(found) >= min(context // 2, context - batch + 1)


def test_tiny_documents_name_the_largest_batch(tokenizer, document):
    tiny = Document("t.txt", "the end")  # two or more tokens
    length = len(tokenizer.encode(tiny.text))
    rows = build_rows([tiny], tokenizer, batch=length)
    assert sizes(rows) == list(range(length, 0, -1))
    assert f"lower the batch to {length} " in refusal([tiny], tokenizer, batch=length + 1)
    largest = 2 * length + 1  # the tiny one is second, so its turns come last
    assert len(set(build_rows([document, tiny], tokenizer, batch=largest))) == largest
    message = refusal([document, tiny], tokenizer, batch=largest + 1)
    assert f"lower the batch to {largest} " in message


def test_windows_are_adjacent(tokenizer, document):
    requests = build_rows([document], tokenizer, context=100, batch=3, rows="windows")
    ids = tokenizer.encode(TEXT)
    assert [list(r.tokens) for r in requests] == [ids[:100], ids[100:200], ids[200:300]]
    assert names(requests) == ["a.txt[:100]", "a.txt[100:200]", "a.txt[200:300]"]


def test_windows_from_the_tail(tokenizer, document):
    requests = build_rows([document], tokenizer, context=100, batch=2, rows="windows", take="tail")
    ids = tokenizer.encode(TEXT)
    assert [list(r.tokens) for r in requests] == [ids[-100:], ids[-200:-100]]
    assert names(requests) == ["a.txt[-100:]", "a.txt[-200:-100]"]


def test_windows_of_several_documents_take_turns_until_they_run_out(tokenizer):
    ids = tokenizer.encode(TEXT)
    long, short = ids[:350], ids[:120]
    documents = [Document("l", tokenizer.decode(long)), Document("s", tokenizer.decode(short))]
    requests = build_rows(documents, tokenizer, context=100, batch=4, rows="windows")
    assert names(requests) == ["l[:100]", "s[:100]", "l[100:200]", "l[200:300]"]
    message = refusal(documents, tokenizer, context=100, batch=5, rows="windows")
    assert "4 windows of 100 tokens" in message


def test_windows_with_bos_have_the_wanted_size(tokenizer, document):
    tokenizer = Tokenizer(tokenizer.backend, bos_id=7)
    requests = build_rows([document], tokenizer, context=100, batch=2, rows="windows")
    ids = tokenizer.encode(TEXT)
    assert [r.tokens for r in requests] == [(7, *ids[:99]), (7, *ids[99:198])]


def test_a_document_smaller_than_a_window_is_one(tokenizer):
    short = Document("s", "the end")
    [request] = build_rows([short], tokenizer, context=1000, rows="windows")
    assert request == Request("s", tuple(tokenizer.encode("the end")), row=0)
    assert "1 window of 1000" in refusal([short], tokenizer, context=1000, batch=2, rows="windows")


def test_windows_need_a_context(tokenizer, document):
    assert names(build_rows([document], tokenizer, rows="windows")) == ["a.txt"]
    assert "context" in refusal([document], tokenizer, batch=2, rows="windows")


def test_a_question_follows_the_document(any_tokenizer, document):
    asked = build_rows([document], any_tokenizer, context=400, batch=2, prompt="the end?")
    plain = build_rows([document], any_tokenizer, context=800)[0].tokens
    assert sizes(asked) == [400, 400 - (400 - _tail(any_tokenizer)) // 32]
    for request in asked:
        document_tokens = len(request.tokens) - _tail(any_tokenizer)
        assert request.tokens[:document_tokens] == plain[:document_tokens]
        assert any_tokenizer.decode(request.tokens).endswith("\n\nthe end?")
    assert asked[1].tokens[-_tail(any_tokenizer) :] == asked[0].tokens[-_tail(any_tokenizer) :]


def _tail(tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode("a\n\nthe end?")) - len(tokenizer.encode("a"))


def test_chat_template_frames_document_and_question(tokenizer, document):
    model = with_template(tokenizer, CHATML)
    head = tokenizer.encode("<|im_start|>user\n")
    tail = tokenizer.encode("\n\nthe end?<|im_end|>\n<|im_start|>assistant\n")
    requests = build_rows([document], model, context=300, batch=3, prompt="the end?")
    size = 300 - len(head) - len(tail)
    assert sizes(requests) == [300, 300 - size // 32, 300 - 2 * (size // 32)]
    ids = tokenizer.encode(TEXT)
    for request in requests:
        middle = len(request.tokens) - len(head) - len(tail)
        assert list(request.tokens) == head + ids[:middle] + tail
    assert names(requests)[1] == f"a.txt[:{size - size // 32}]"


@pytest.mark.parametrize("template", [CHATML, INST])
def test_rows_equal_the_tokens_of_the_rendered_chat(any_tokenizer, template):
    """Though head, document and tail are tokenised apart."""
    text, question = "The other house\nat the end", "the end?"
    model = with_template(any_tokenizer, template)
    [request] = build_rows([Document("d", text)], model, prompt=question)
    if template == CHATML:
        content = f"user\n{text}\n\n{question}"
        whole = f"<|im_start|>{content}<|im_end|>\n<|im_start|>assistant\n"
    else:
        whole = f"<|im_start|>[INST] {text}\n\n{question} [/INST]"
    assert list(request.tokens) == any_tokenizer.encode(whole)


def test_raw_and_promptless_rows_ignore_the_template(tokenizer, document):
    model = with_template(tokenizer, CHATML)
    settings = {"context": 200, "batch": 2}
    assert build_rows([document], model, **settings) == build_rows(
        [document], tokenizer, **settings
    )
    asked = build_rows([document], model, prompt="the end?", raw=True, **settings)
    assert asked == build_rows([document], tokenizer, prompt="the end?", **settings)


@pytest.mark.parametrize(
    ("template", "cause"), [(TWICE, "2 times"), (REFUSING, "no system role"), ("{% if %}", "--raw")]
)
def test_unusable_templates(tokenizer, document, template, cause):
    assert cause in refusal([document], with_template(tokenizer, template), prompt="why?")


def test_a_context_must_hold_prompt_and_template(tokenizer, document):
    model = with_template(tokenizer, CHATML)
    message = refusal([document], model, context=5, prompt="the end?")
    smallest = int(message.rpartition(" ")[2])
    [request] = build_rows([document], model, context=smallest, prompt="the end?")
    assert len(request.tokens) == smallest
    assert "context 5 " in message
    assert f"at least {smallest}" in refusal(
        [document], model, context=smallest - 1, prompt="the end?"
    )


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"context": 0}, "context must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"prompt": " \n"}, "prompt is blank"),
        ({"prompt": ""}, "prompt is blank"),
    ],
)
def test_settings_out_of_range(tokenizer, document, settings, cause):
    assert cause in refusal([document], tokenizer, **settings)


def test_progress_names_the_document(tokenizer, document):
    calls: list[tuple[str, int, int]] = []
    build_rows(
        [document, Document("b.txt", TEXT)],
        tokenizer,
        context=50,
        progress=lambda *call: calls.append(call),
    )
    assert calls == [("a.txt", 50, 50), ("b.txt", 50, 50)]


def test_only_the_needed_part_is_tokenised(tokenizer):
    class Counting(Tokenizer):
        characters = 0

        def encode(self, text: str) -> list[int]:
            Counting.characters += len(text)
            return super().encode(text)

    long = Document("l", TEXT * 200)
    build_rows([long], Counting(tokenizer.backend), context=100, batch=4)
    assert Counting.characters < len(long.text) // 10
