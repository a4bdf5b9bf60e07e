"""Calls to whoever watches a run; what goes wrong in them is raised once the engine is consistent again."""

from __future__ import annotations

from threading import Lock
from types import TracebackType

from specsim.errors import InputError


class Listening:
    """Keeps the exceptions of observers and listeners until a step is over.

    Each of them is called inside `with listening:`. A step that broke off there would leave requests behind that have
    ended, or whose prompt is complete, and that nobody ends or decodes any more.
    """

    def __init__(self) -> None:
        self._raised: list[BaseException] = []
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self._depth -= 1
        if error is not None:
            self._raised.append(error)
        return True

    def raise_first(self) -> None:
        """Raise what went wrong first, if anything did; a note says of how many more."""
        if self._depth or not self._raised:
            return
        first, *more = self._raised
        self._raised = []
        if more:
            kinds = ", ".join(sorted({type(error).__name__ for error in more}))
            first.add_note(f"{len(more)} more observers or listeners of the same step raised: {kinds}")
        raise first


class OneAtATime:
    """Lets one step run at a time.

    Raises  InputError where a step is taken inside another: by an observer, by a listener, or by another thread
    """

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InputError(
                "a step of this engine is under way: an observer or listener may submit and cancel, and must not step"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
