"""`python -m holdfast`, and the command `holdfast`: the command line.

Ctrl-C ends a command with exit code 130 and no word, also while it is being loaded.
"""

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from signal import SIGINT, default_int_handler, getsignal, signal
else:
    from _signal import SIGINT, default_int_handler, getsignal, signal

if getsignal(SIGINT) is default_int_handler:  # not if it is ignored, as in the background of a shell
    signal(SIGINT, lambda *_: os._exit(130))

from holdfast.faces.cli import start  # noqa: E402  # loading it takes the time

__all__ = ["start"]

if __name__ == "__main__":
    start()
