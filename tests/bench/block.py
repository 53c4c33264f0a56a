"""Makes the main thread of this process block for real when it is told to: SIGUSR1, 1.5 s in one C call.

``python -m tests.bench.block run ...`` is ``gpu-reactor run ...`` with that added. The handler of a signal runs in the
main thread, which is trio's, and nothing else of that thread goes on meanwhile. Both moments are told on stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import time

SECONDS = 1.5


def arm() -> None:
    signal.signal(signal.SIGUSR1, _block)


def _block(number: int, frame: object) -> None:
    os.write(2, b"blocked\n")
    time.sleep(SECONDS)
    os.write(2, b"released\n")


if __name__ == "__main__":
    from reactor.cli import main

    arm()
    sys.exit(main(sys.argv[1:]))
