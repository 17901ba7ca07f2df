"""How much one API process accepts at a time, and how long it waits for a client. Both services read the same variables.

HTTP_CONCURRENCY          requests that are handled at once; each may use one database connection (10)
HTTP_QUEUE                requests that may wait for another one to end; any more are refused at once (100)
HTTP_QUEUE_SECONDS        seconds that a request waits before it is refused (0.5)
HTTP_CONNECTIONS          open connections; while there are more, requests are refused and their connections closed (5000)
HTTP_HEADER_SECONDS       seconds in which the head of a request must arrive (10)
HTTP_BODY_SECONDS         seconds in which the body of a request must arrive (10)
HTTP_KEEP_ALIVE_SECONDS   seconds that a connection stays open without a request (20); behind a proxy, more than the proxy's own
"""

from dataclasses import dataclass, replace

from servicekit.settings import Environment

MAX_BODY = 100_000  # bytes
MAX_HEAD = 32_768  # bytes of the target and the headers of a request
OPERATOR_SLOTS = 2  # requests of operators that are handled at once, beside HTTP_CONCURRENCY
OPERATOR_SECONDS = 5.0  # that an operator's request waits for a slot
OPERATOR_CONNECTIONS = 50  # open connections to the operators' listener
BACKGROUND_CONNECTIONS = 4  # for what is no request: sharing rate limits, and reading changes for live streams


@dataclass(frozen=True, slots=True)
class HttpLimits:
    concurrency: int = 10
    queue: int = 100
    queue_seconds: float = 0.5
    connections: int = 5000
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    keep_alive_seconds: int = 20

    @classmethod
    def load(cls, environment: Environment) -> "HttpLimits":
        default = cls()
        return cls(
            concurrency=environment.number("HTTP_CONCURRENCY", default.concurrency, int, least=1),
            queue=environment.number("HTTP_QUEUE", default.queue, int),
            queue_seconds=environment.number("HTTP_QUEUE_SECONDS", default.queue_seconds, float),
            connections=environment.number("HTTP_CONNECTIONS", default.connections, int, least=1),
            header_seconds=environment.number("HTTP_HEADER_SECONDS", default.header_seconds, float, least=0.1),
            body_seconds=environment.number("HTTP_BODY_SECONDS", default.body_seconds, float, least=0.1),
            keep_alive_seconds=environment.number("HTTP_KEEP_ALIVE_SECONDS", default.keep_alive_seconds, int, least=1),
        )

    def for_operators(self) -> "HttpLimits":
        """The limits of the operators' listener: few requests at once, which may wait longer."""
        return replace(
            self, concurrency=OPERATOR_SLOTS, queue_seconds=OPERATOR_SECONDS, connections=OPERATOR_CONNECTIONS
        )

    @property
    def pool_size(self) -> int:
        """Database connections with which no admitted request ever waits for one. Operators have connections of their own."""
        return self.concurrency + BACKGROUND_CONNECTIONS
