"""`fern fairness`: runs e2e.experiments.fairness."""

from fern.experiments import experiment

fairness = experiment("fairness")
