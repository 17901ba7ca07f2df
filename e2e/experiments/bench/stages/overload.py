"""More clients than one API process can serve: how much it still answers, and how long an answer and a refusal take."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil

from e2e.experiments.bench.environment import Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage
from e2e.experiments.bench.stages.api import PLANNED, prepared
from e2e.support.ports import free_port_base

CLIENTS = {"best": 16, "ten": 160, "crowd": 2500}
SECONDS = 6.0  # for each number of clients
MOST = 1500  # requests a second that are prepared


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    seconds, port = max(0.5, SECONDS * options.scale), free_port_base()
    count = int(MOST * seconds)
    url = environment.copy(environment.server.url("labour", "labour"), "labour")
    environment.sql(url, PLANNED.format(count=count * len(CLIENTS) * (options.rounds + 1)))
    environment.vacuum(url)
    variables = {"LABOUR_DATABASE_URL": url, "LABOUR_API_PORT": str(port)}
    api = environment.process("-m", "labour", "api", ready=f"http://127.0.0.1:{port}/health/ready", **variables)
    requests = prepared(environment, url, "labour", "/api/v1/labours/{}/complete")
    load, process = environment.child("overload_load"), psutil.Process(api.pid)

    def measure(name: str) -> dict[str, Any]:
        clients = options.sized(CLIENTS[name], least=min(CLIENTS[name], 200))
        batch = [next(requests) for _ in range(count)]
        before = sum(process.cpu_times()[:2])
        result = load.ask(port=port, requests=batch, clients=clients, seconds=seconds)
        if unexpected := result["statuses"].keys() - {"200", "503", "-200"}:
            raise WorkMissing(f"overload: {clients} clients were answered {sorted(unexpected)}.")
        if result["count"] == 0:
            raise WorkMissing(f"overload: none of {clients} clients was served.")
        return {**result, "cpu": sum(process.cpu_times()[:2]) - before}

    def round_of(_: int) -> dict[str, Measured]:
        results = {name: measure(name) for name in CLIENTS}
        crowd = results["crowd"]
        return {
            **{name: Measured.rate(result) for name, result in results.items()},
            "admitted": _p99(crowd["admitted"]),
            "refused": _p99(crowd["refused"] or crowd["admitted"]),  # a fast machine refuses none of few
            "ready": Measured(1000 * max(crowd["ready"])),
        }

    yield round_of


def _p99(seconds: Sequence[float]) -> Measured:
    return Measured(1000 * sorted(seconds)[int(0.99 * (len(seconds) - 1))])


STAGE = Stage(
    "overload",
    "one API process with 16, 160 and 2,500 clients",
    {
        "best": Case("goodput, 16 clients", "requests/s"),
        "ten": Case("goodput, 160 clients", "requests/s", against="best", goal=0.9),
        "crowd": Case("goodput, 2,500 clients", "requests/s", against="best"),
        "admitted": Case("2,500 clients: an admitted request, p99", "ms", goal=2000, lower=True),
        "refused": Case("2,500 clients: a refusal, p99", "ms", goal=1000, lower=True),
        "ready": Case("2,500 clients: the slowest health check", "ms", goal=1000, lower=True),
    },
    start,
)
