"""python -m imgconv, and the command `imgconv`: the command line."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs imgconv.cli.main. Its imports take most of a second: Ctrl-C ends them as it ends the work."""
    try:
        from imgconv import cli

        return cli.main()
    except KeyboardInterrupt:
        print("imgconv: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
