import random
import socket

from fern.settings import PORTS


def free_port_base() -> int:
    """The first of enough consecutive ports that are free right now.

    From below the range that systems take for outgoing connections, so that none of those gets in between.
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
