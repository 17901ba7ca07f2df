"""A TCP proxy that can go silent, as the network does in a failover.

`silence()` stops forwarding on the connections that exist, without closing them: both ends see an open connection on which
nothing arrives, not even the end of the other side. New connections work. What was sent meanwhile is lost.

It runs in threads of its own, so that synchronous and asynchronous tests can use it. TCP keepalive does not notice its silence,
because the proxy's own kernel answers the probes: only a time limit of the client or the server does.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class TcpProxy:
    """Forwards connections to 127.0.0.1:`port` to `target` (host, port)."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links = list[_Link]()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> int:
        """Stop forwarding on the connections that exist. Returns their number."""
        with self._lock:
            forwarding = [link for link in self._links if link.forwarding]
            for link in forwarding:
                link.forwarding = False
            return len(forwarding)

    def close(self) -> None:
        """Stop listening, and close every connection, silent or not."""
        self._listener.close()
        with self._lock:
            for link in self._links:
                link.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target, timeout=10)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                with self._lock:
                    self._links.append(_Link(client, server))


class _Link:
    """One connection: a thread for each direction."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.forwarding = True
        self._ends = (client, server)
        for end in self._ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((client, server), (server, client)):  # from here on, either thread may close both ends
            threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.forwarding:
                    target.sendall(data)
        if self.forwarding:
            self.close()

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
            end.close()


@contextmanager
def tcp_proxy(target: tuple[str, int]) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
