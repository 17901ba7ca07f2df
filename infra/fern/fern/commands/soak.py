"""`fern soak`: runs e2e.experiments.soak."""

from fern.experiments import experiment

soak = experiment("soak")
