"""python -m imgconv: the command line."""

import sys

from imgconv.cli import main

if __name__ == "__main__":
    sys.exit(main())
