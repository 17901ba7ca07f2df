"""TCP ports of this machine that are free right now."""

import random
import socket
from contextlib import ExitStack, suppress

_kept = list[socket.socket]()  # until this process ends


def free_port_base() -> int:
    """The first of ten consecutive free ports, below the range from which systems take ports of outgoing connections.

    This process keeps the one after them, so that another process that looks at the same time chooses other ports.
    """
    for base in random.SystemRandom().sample(range(10_000, 32_000, 20), 50):
        with suppress(OSError), ExitStack() as taken:
            *_, after = [
                taken.enter_context(socket.create_server(("127.0.0.1", base + offset))) for offset in range(11)
            ]
            _kept.append(after.dup())
            return base
    raise AssertionError("no free ports")
