import socket

from fern.settings import PORTS


def free_port_base() -> int:
    """The first of enough consecutive ports that are free right now."""
    for _ in range(50):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            base = probe.getsockname()[1]
        if base + len(PORTS) < 65500 and all(_is_free(base + offset) for offset in PORTS.values()):
            return int(base)
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
