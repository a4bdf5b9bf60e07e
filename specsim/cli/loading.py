"""Loading modules: an interrupt meanwhile ends the process at once, since nothing has been begun."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""

TOLD = "specsim: interrupted"


@contextmanager
def loading_modules() -> Iterator[None]:
    """Leave with one line and no traceback when interrupted meanwhile.

    A library would meet a KeyboardInterrupt wherever it is, and makes another error of it, or aborts. An interrupt that
    is ignored, as in the background of a script, stays so.
    """
    taken = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not taken or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: Any) -> None:
    os.write(2, f"{TOLD}\n".encode())  # not print, which may be what was interrupted
    os._exit(INTERRUPTED)
