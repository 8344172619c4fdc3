"""What stands around the document in a row: BOS, chat template and question."""

from __future__ import annotations

from dataclasses import dataclass

from magicdec.engine.errors import ConfigError, require, require_utf8
from magicdec.engine.text.timed import within
from magicdec.engine.text.tokenizer import Tokenizer, tokenize

RENDER_SECONDS = 10.0  # a template takes milliseconds


@dataclass(frozen=True, slots=True)
class Frame:
    """A row is `head` + document tokens + `tail`, so rows of one document share a long prefix.

    The document's own tokens are those of `indent` + its text behind the text `before`: tokens
    depend on what precedes them, and most tokenizers join a space to the word that follows it.
    """

    head: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()
    before: str = ""
    indent: str = ""

    def __len__(self) -> int:
        """Tokens that the frame adds to a row."""
        return len(self.head) + len(self.tail)


def make_frame(tokenizer: Tokenizer, prompt: str | None, raw: bool) -> Frame:
    """The frame that puts `prompt` after a document.

    With a chat template, unless `raw`, the two become a user message and the reply is begun.
    Otherwise the prompt simply follows the document, and without a prompt the document is
    continued. Raises ConfigError for a blank prompt and a template that cannot be rendered.
    """
    require(prompt is None or bool(prompt.strip()), "the prompt is blank; leave it out for none")
    require_utf8(prompt or "", "the prompt")
    if prompt is not None and tokenizer.chat_template is not None and not raw:
        before, after = _render(tokenizer, prompt)
        start = before.rstrip(" ")
        return Frame(
            head=tuple(tokenizer.encode(start)),
            tail=_follow(tokenizer, after),
            before=start,
            indent=before[len(start) :],
        )
    bos = () if tokenizer.bos_id is None else (tokenizer.bos_id,)
    tail = () if prompt is None else _follow(tokenizer, f"\n\n{prompt}")
    return Frame(head=bos, tail=tail)


def _follow(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Tokens of `text` behind a document, whose last word is unknown: it differs between rows."""
    return tuple(tokenize(tokenizer, text, before="a"))


def _render(tokenizer: Tokenizer, prompt: str) -> tuple[str, str]:
    """The rendered chat before and after the document."""
    # Takes over a second to import, and only instruct models with a prompt need it.
    from transformers.utils.chat_template_utils import render_jinja_template

    stand_in = "\ue000document\ue000"  # private-use characters: no template has or changes them
    message = {"role": "user", "content": f"{stand_in}\n\n{prompt}"}

    def render() -> str:
        [text], _ = render_jinja_template(
            [[message]],
            chat_template=tokenizer.chat_template,
            add_generation_prompt=True,
            **tokenizer.special_text,
        )
        return str(text)

    try:
        text = within(RENDER_SECONDS, render)
    except TimeoutError:
        raise ConfigError(
            f"the model's chat template goes on for over {RENDER_SECONDS:.0f} seconds; use --raw "
            "to do without it"
        ) from None
    except Exception as error:  # a template is a program, and fails as one
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(
            f"the model's chat template fails: {why}; use --raw to do without it"
        ) from error
    require(
        text.count(stand_in) == 1,
        f"the model's chat template shows a message {text.count(stand_in)} times, not once; "
        "use --raw to do without it",
    )
    before, _, after = text.partition(stand_in)
    return before, after
