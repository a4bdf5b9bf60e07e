"""Text from tokens as they come, and where a stop text ends it."""

from __future__ import annotations

from typing import Any

REPLACEMENT = "�"
"""What a tokenizer gives for bytes that do not yet make a character."""


class Detokenizer:
    """The text of one request's output, token by token.

    tokenizer     what knows the text of a token
    stop          texts that end the output, as in `SamplingParams.stop`
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._longest = max((len(text) for text in stop), default=0)
        self._tokens: list[int] = []
        self._start = 0  # first token of the piece being decoded: a token's text depends on its neighbours
        self._done = 0  # tokens whose text is in `text`
        self.text = ""
        self._told = 0
        self._ended = False  # by a stop text: what is left has no place in the text

    def add(self, token: int) -> bool:
        """Take one more token; whether a stop text is complete with it, which then is cut from the text."""
        self._tokens.append(token)
        before = self._decode(self._start, self._done)
        after = self._decode(self._start, len(self._tokens))
        if len(after) <= len(before) or after.endswith(REPLACEMENT):
            return False
        seen = len(self.text)
        self.text += after[len(before) :]
        self._start, self._done = self._done, len(self._tokens)
        return self._cut(max(0, seen - self._longest + 1))

    def finish(self) -> None:
        """No token follows: bytes that still wait for the rest of a character become the replacement character."""
        if self._ended:
            return
        before = self._decode(self._start, self._done)
        self.text += self._decode(self._start, len(self._tokens))[len(before) :]
        self._done = len(self._tokens)
        self._ended = True

    def news(self, finished: bool) -> str:
        """Text that was not told before. What may be the beginning of a stop text waits."""
        sure = len(self.text) if finished else len(self.text) - self._held_back()
        piece = self.text[self._told : sure]
        self._told = max(self._told, sure)
        return piece

    def _cut(self, start: int) -> bool:
        found = [at for at in (self.text.find(stop, start) for stop in self._stop) if at >= 0]
        if not found:
            return False
        self.text = self.text[: min(found)]
        self._ended = True
        return True

    def _held_back(self) -> int:
        """Characters at the end that a stop text could begin with."""
        for length in range(min(self._longest - 1, len(self.text)), 0, -1):
            if any(stop.startswith(self.text[-length:]) for stop in self._stop):
                return length
        return 0

    def _decode(self, start: int, stop: int) -> str:
        return str(self._tokenizer.decode(self._tokens[start:stop], skip_special_tokens=True))
