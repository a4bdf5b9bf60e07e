"""The one error a person causes: shown as a single line with exit code 2, never as a traceback."""


class InputError(ValueError):
    """Something a person gave is wrong: a file, an option, a combination. The message is one line that
    names what, where, and what is allowed.

    What a person gave may hold a line break of any kind, and messages quote it: each becomes a blank.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))
