"""`python -m specsim`: the command `specsim`."""

import sys

from specsim.cli.loading import INTERRUPTED, TOLD, loading_modules


def main() -> None:
    """Load the command line, which takes half a second, run it and leave the process with its exit code."""
    with loading_modules():
        from specsim.cli.main import main as command
    try:
        command()
    except KeyboardInterrupt:  # just before or behind where the command itself takes it
        print(TOLD, file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
