"""`convnet` and `python -m convnet`: so small that Ctrl-C finds it ready while the rest is imported."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command line; the exit status."""
    before = signal.signal(signal.SIGINT, _leave)  # an exception would come out of whichever import it hits
    from convnet.cli import main as run

    signal.signal(signal.SIGINT, before)
    return run()


def _leave(number: int, frame: FrameType | None) -> None:
    if "CONVNET_RANK" not in os.environ:  # else the launcher says it
        os.write(2, b"interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
