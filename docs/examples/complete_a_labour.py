"""Complete a labour over the Labour API, and wait until two people were told. Needs nothing but Python.

    TOKEN=$(.venv/bin/fern token eve) .venv/bin/python docs/examples/complete_a_labour.py +12025550131 +12025550132

What a client has to do so that each change has its effect once, although requests and answers are lost:

1. Make one idempotency key for each change, before the first attempt. Keep it until there is an answer.
2. Send the request again, with the same key, after a timeout or a lost connection: it may have had its effect already.
3. Wait for `Retry-After` seconds if the answer has this header: 409 `request-in-flight`, 429 and 503.
4. Any other answer is final. A problem says in `detail` what to do.
"""

import argparse
import json
import os
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from uuid import uuid4

TRY_FOR_SECONDS = 60.0
TIMEOUT_SECONDS = 5.0
GATEWAY_ERRORS = (502, 504)  # of a proxy, which does not know whether the request had its effect


class Api:
    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token

    def change(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._until_answered(method, path, body, {"Idempotency-Key": str(uuid4())})

    def read(self, path: str) -> Any:
        return self._until_answered("GET", path, None, {})

    def _until_answered(self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]) -> Any:
        ends_at, pause = time.monotonic() + TRY_FOR_SECONDS, 0.1
        while True:
            try:
                return self._send(method, path, body, headers)
            except urllib.error.HTTPError as error:
                wait = error.headers.get("Retry-After")
                if wait is None and error.code not in GATEWAY_ERRORS:
                    raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}") from None
                reason, seconds = f"answer {error.code}", float(wait or pause)
            except (OSError, HTTPException) as error:  # refused, reset, timed out, or an answer that ends too early
                reason, seconds = f"no answer ({type(error).__name__})", pause
            if time.monotonic() + seconds > ends_at:
                raise SystemExit(f"{method} {path}: {reason}, gave up. It may have had its effect.")
            print(f"{method} {path}: {reason}, again in {seconds:g} s")
            time.sleep(seconds)
            pause = min(2 * pause, 5.0)

    def _send(self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(self._url + path, data, sent, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            result = json.loads(answer.read())
        if method != "GET":
            replayed = ", the answer of an earlier attempt" if answer.headers.get("Idempotency-Replayed") else ""
            print(f"{method} {path}: {answer.status}{replayed}")
        return result


def main() -> None:
    options = argparse.ArgumentParser(description="Complete a labour, and wait until two people were told.")
    options.add_argument("phones", nargs=2, metavar="PHONE")
    options.add_argument("--url", default="http://127.0.0.1:8401", help="of the Labour API (%(default)s)")
    given = options.parse_args()
    api = Api(given.url, os.environ["TOKEN"])

    labour = "/api/v1/labours/" + api.change("POST", "/api/v1/labours", {"mother_name": "Eve"})["id"]
    for name, phone in zip(("Grace", "Alan"), given.phones, strict=True):
        api.change("POST", f"{labour}/subscribers", {"name": name, "phone": phone})
    api.change("PUT", f"{labour}/begin")
    api.change("PUT", f"{labour}/complete", {"notes": "All is well."})

    births, ends_at = list[dict[str, Any]](), time.monotonic() + TRY_FOR_SECONDS
    while len(births) < 2 and time.monotonic() < ends_at:
        time.sleep(0.2)
        births = [one for one in api.read(f"{labour}/told")["items"] if one["event_type"] == "labour.completed"]
    for one in births:
        print(f"{one['name']}: {one['status']}")
    if len(births) < 2:
        raise SystemExit("Not every person was told within a minute. Ask again later: the texts are not lost.")


if __name__ == "__main__":
    main()
