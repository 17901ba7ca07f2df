"""`fern chaos`: runs e2e.experiments.chaos."""

from fern.experiments import experiment

chaos = experiment("chaos")
