"""TCP ports of this machine that are free right now."""

import random
import socket

from fern.settings import PORTS


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def free_port_base() -> int:
    """The first of enough consecutive free ports for a whole system.

    They lie below the range from which operating systems take the ports of outgoing connections.
    """
    for base in random.SystemRandom().sample(range(10_000, 32_000, 10), 50):
        if all(_is_free(base + offset) for offset in PORTS.values()):
            return base
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
