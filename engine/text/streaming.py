"""Tokens to text as they come, ended by stop strings."""

from __future__ import annotations

from magicdec.engine.text.tokenizer import Tokenizer

_INCOMPLETE = "\ufffd"  # what a decoder makes of a character whose last bytes are still to come
_MAX_HELD = 16  # tokens; a character has at most 4, so more than that are bytes that spell nothing
_MAX_CHARACTER = 4  # tokens


class TextStream:
    """Decodes one row's tokens at a constant cost per token.

    Text is given out once nothing can change it: characters whose bytes are complete, and that
    cannot be the beginning of a stop string. Special tokens have no text.

    `stopped` is true from the first token after which the text holds a stop string; the text then
    ends before the stop string that begins first, and later tokens are ignored.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = ()) -> None:
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = stop
        self._special = {
            token
            for token, added in tokenizer.backend.get_added_tokens_decoder().items()
            if added.special
        }
        # Decoding a token alone may lose what it means next to others (a leading space, half a
        # character). So the window `_ids` keeps some settled tokens in front of the new ones:
        # the first `_settled` are complete, and `_shown` characters of its text are taken.
        self._ids: list[int] = []
        self._settled = 0
        self._shown = 0
        self._held = ""  # decoded, but perhaps the beginning of a stop string
        self._given: list[str] = []

    @property
    def text(self) -> str:
        """All text given out so far."""
        return "".join(self._given)

    def push(self, token: int) -> str:
        """The text that became certain with `token`."""
        if self.stopped or token in self._special:
            return ""
        self._ids.append(token)
        whole = self._tokenizer.decode(self._ids)
        certain = whole.rstrip(_INCOMPLETE)
        if len(certain) == len(whole):
            fresh = whole[self._shown :]
            self._settle(len(self._ids))
        elif len(self._ids) - self._settled < _MAX_HELD:
            fresh = certain[self._shown :]
            self._shown = max(self._shown, len(certain))
        else:
            fresh = self._give_up(whole)
        return self._give(fresh)

    def finish(self) -> str:
        """The text that was held back; no token may follow."""
        if self.stopped:
            return ""
        fresh = self._tokenizer.decode(self._ids)[self._shown :]
        self._ids.clear()
        self._settled = self._shown = 0
        return self._give(fresh, last=True)

    def _settle(self, count: int) -> None:
        """Declares `count` tokens complete and drops those that were complete before."""
        del self._ids[: self._settled]
        self._settled = count - self._settled
        self._shown = len(self._tokenizer.decode(self._ids[: self._settled]))

    def _give_up(self, whole: str) -> str:
        """Settles invalid bytes as they are, up to where a character may still be in the making."""
        for count in range(len(self._ids) - 1, len(self._ids) - 1 - _MAX_CHARACTER, -1):
            part = self._tokenizer.decode(self._ids[:count])
            if whole == part + self._tokenizer.decode(self._ids[count:]):
                break  # no character spans this place
        fresh = part[self._shown :]
        self._settle(count)
        return fresh

    def _give(self, fresh: str, *, last: bool = False) -> str:
        text = self._held + fresh
        found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            text, self._held = text[: min(found)], ""
        else:
            keep = 0 if last else self._stop_beginning(text)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self._given.append(text)
        return text

    def _stop_beginning(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        longest = min(len(text), max(map(len, self._stop), default=1) - 1)
        return next((n for n in range(longest, 0, -1) if self._begins_stop(text[-n:])), 0)

    def _begins_stop(self, end: str) -> bool:
        return any(stop.startswith(end) for stop in self._stop)
