"""The `specsim` command: gathers the command groups and turns a person's mistakes into one line."""

from __future__ import annotations

import errno
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from specsim.cli import cost, trace
from specsim.cli.calibrate import calibrate
from specsim.cli.compare import compare
from specsim.cli.demo import demo
from specsim.cli.exactness import exactness
from specsim.cli.loading import INTERRUPTED, TOLD
from specsim.cli.parity import parity
from specsim.cli.policies import policies
from specsim.cli.profile import profile
from specsim.cli.record import record
from specsim.cli.regret import regret
from specsim.cli.run import run as run_live
from specsim.cli.schema import schema
from specsim.cli.simulate import simulate
from specsim.cli.timeline import timeline
from specsim.cli.tune import tune
from specsim.errors import InputError

USAGE_ERROR = 2

PLACE_ERRORS = {
    errno.EACCES, errno.EDQUOT, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOSPC, errno.ENOTDIR,
    errno.EPERM, errno.EROFS,
}  # fmt: skip
"""What is wrong with a place, not with specsim: it is missing, full, or not to be written."""


class Interrupted(Exception):
    """An interrupt, and what its command says of what was written (empty: nothing)."""


class Commands(TyperGroup):
    """Takes an interrupt before Typer does, whose releases differ in what they make of it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(str(interrupt)) from None


app = typer.Typer(
    name="specsim",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version_line() -> str:
    import platform
    from importlib import metadata

    import numpy

    try:
        own = metadata.version("specsim-llm")
    except metadata.PackageNotFoundError:
        from specsim import __version__ as own
    return f"specsim {own} (Python {platform.python_version()}, numpy {numpy.__version__})"


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(_version_line())
        raise typer.Exit


@app.callback()
def specsim(
    asked_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """How should speculative decoding be controlled, and what is it worth?

    Record a trace once, replay any policy on it, run the same controller live.
    """


app.command()(demo)
app.command()(simulate)
app.command()(compare)
app.command()(regret)
app.command()(exactness)
app.command()(calibrate)
app.command()(tune)
app.command()(policies)
app.command()(record)
app.command()(profile)
app.command("run")(run_live)
app.command()(parity)
app.command()(timeline)
app.add_typer(cost.app, name="cost")
app.add_typer(trace.app, name="trace")
app.command()(schema)


@app.command()
def version() -> None:
    """Print the version of specsim and of what it computes with."""
    typer.echo(_version_line())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code.

    arguments   without the program's name (None: of the process)

    Exit code 0 is success, 2 something a person gave or a place that cannot be read or written, 130 an
    interrupt. A fault of specsim itself keeps its traceback: hiding it would only make it harder to report.
    """
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for argument in arguments:
        if not _is_text(argument):  # it would be found out where it is written, after the work
            return _complain(f"argument {argument!r}: must be UTF-8 text")
    try:
        result = app(args=arguments, prog_name="specsim", standalone_mode=False, obj={"arguments": arguments})
    except InputError as error:
        return _complain(str(error))
    except (Interrupted, KeyboardInterrupt, typer.Abort) as interrupt:
        print(f"{TOLD}{f': {interrupt}' if str(interrupt) else ''}", file=sys.stderr)
        exec("")  # else, where an interrupt met an exec, `python -m` ends by the signal all the same
        return INTERRUPTED
    except MemoryError as error:
        return _complain(f"not enough memory for what was asked{f' ({error})' if str(error) else ''}; ask for less")
    except OSError as error:
        if error.errno not in PLACE_ERRORS:
            raise
        return _complain(f"{error.filename or 'output'}: {error.strerror}")
    except Exception as error:
        if not _is_usage_error(error):
            raise
        return _complain_of_usage(error)
    return result if isinstance(result, int) else 0


def _complain(message: str) -> int:
    print(f"specsim: error: {' '.join(message.split())}", file=sys.stderr)
    return USAGE_ERROR


def _is_text(argument: str) -> bool:
    """Whether it can be written to a file; Python hands over bytes that are no UTF-8 as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in argument)


def _is_usage_error(error: Exception) -> bool:
    """Whether the argument parser raised it; by shape, because its classes move between Typer releases."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _complain_of_usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        if error.message:  # empty when the help was printed already
            typer.echo(error.message)
        return USAGE_ERROR
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return _complain(f"{error.format_message().rstrip('.')}{hint}")


if __name__ == "__main__":
    main()
