"""`fern chaos`: passed on to the program e2e.experiments.chaos."""

from fern.experiments import experiment

chaos = experiment("chaos", "Break everything under load, from a seed, and account for every message.")
