"""A stand-in for Twilio's Messages API that costs next to nothing: `python -m e2e.experiments.bench.sms_stand_in PORT`.

Every POST creates a message. GET answers with the times at which messages were accepted, in seconds since 1970, and forgets them.
"""

import asyncio
import json
import re
import sys
import time

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)

accepted = list[float]()


class Requests(asyncio.Protocol):
    """HTTP as our clients use it. A subclass says how a POST and a GET are answered."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            is_post, self._received = self._received.startswith(b"POST"), self._received[whole:]
            self._transport.write(self.answer_post(whole - end - 4) if is_post else self.answer_get())

    def answer_post(self, size: int) -> bytes:
        raise NotImplementedError

    def answer_get(self) -> bytes:
        raise NotImplementedError


class Messages(Requests):
    def answer_post(self, size: int) -> bytes:
        accepted.append(time.time())
        sid = f"SM{time.monotonic_ns():032x}"
        return answer("201 Created", {"sid": sid, "status": "queued", "num_segments": "1", "error_code": None})

    def answer_get(self) -> bytes:
        report = answer("200 OK", {"accepted": list(accepted)})
        accepted.clear()
        return report


def answer(status: str, content: object) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Messages, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
