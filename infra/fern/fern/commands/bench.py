"""`fern bench`: runs e2e.experiments.bench."""

from fern.experiments import experiment

bench = experiment("bench")
