"""`fern museum`: runs e2e.experiments.museum."""

from fern.experiments import experiment

museum = experiment("museum")
