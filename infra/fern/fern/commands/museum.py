"""`fern museum`: passed on to the program e2e.experiments.museum."""

from fern.experiments import experiment

museum = experiment("museum", "Put historical mistakes back in, one by one, and see each of them caught.")
