"""A collector that costs next to nothing: `python -m e2e.experiments.bench.collector PORT`.

Reads what is posted and drops it. GET answers with the number of bytes that were posted, and forgets it.
"""

import asyncio
import sys

from e2e.experiments.bench.sms_stand_in import Requests, answer


class Posts(Requests):
    received = 0

    def answer_post(self, size: int) -> bytes:
        Posts.received += size
        return answer("200 OK", {})

    def answer_get(self) -> bytes:
        received, Posts.received = Posts.received, 0
        return answer("200 OK", {"received": received})


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Posts, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
