"""The programs of docs/examples do what they say, also if every answer to a change is lost and its repetition refused once."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import httpx

from e2e.support.world import COMPLETE, PlannedLabour, World, unused_phone
from fern.settings import PROJECT_ROOT
from fern.tokens import make_token

EXAMPLE = PROJECT_ROOT / "docs" / "examples" / "complete_a_labour.py"


@contextmanager
def lossy_proxy(target: httpx.Client) -> Iterator[tuple[str, Counter[str]]]:
    """Its URL, and how often each key was sent. The first attempt of a change has its effect and no answer, the second one is
    refused, the third one passes.
    """
    attempts = Counter[str]()

    class Proxy(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            key = self.headers.get("Idempotency-Key", "")
            if key:
                attempts[key] += 1
            if attempts[key] == 2:
                self.send_response(503)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            names = ("Authorization", "Content-Type", "Idempotency-Key")
            headers = {name: self.headers[name] for name in names if self.headers.get(name)}
            answer = target.request(self.command, self.path, content=body, headers=headers)
            if attempts[key] == 1:
                return  # closes the connection
            self.send_response(answer.status_code)
            for name in ("Content-Length", "Retry-After", "Idempotency-Replayed"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = forward  # noqa: N815  (names of the standard library)

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", attempts
        server.shutdown()


def test_the_example_completes_a_labour_once_although_every_answer_is_lost(world: World) -> None:
    people = PlannedLabour(uuid4(), {}, {"Grace": unused_phone(), "Alan": unused_phone()})
    with lossy_proxy(world.labour_api) as (url, attempts):
        command = [sys.executable, str(EXAMPLE), *people.people.values(), "--url", url]
        environment = {**os.environ, "TOKEN": make_token(f"eve-{uuid4()}"), "no_proxy": "*"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(attempts) == 5
    assert min(attempts.values()) == 3
    assert done.stdout.count("the answer of an earlier attempt") == 5
    assert {line.partition(":")[0] for line in done.stdout.splitlines()[-2:]} == {"Grace", "Alan"}
    for texts in world.texts(people).values():
        assert texts.count(COMPLETE.replace("Ada", "Eve")) == 1
        assert len(texts) <= 2  # the text about the beginning is superseded if the birth is faster
