"""The one error a person causes: shown as a single line with exit code 2, never as a traceback."""


class InputError(ValueError):
    """Something a person gave is wrong: a file, an option, a combination. The message is one line that
    names what, where, and what is allowed."""
