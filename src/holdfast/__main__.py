"""`python -m holdfast`: the command line."""

import sys

from holdfast.faces.cli import main

if __name__ == "__main__":
    sys.exit(main())
