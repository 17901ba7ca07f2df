"""`fern quest`: runs e2e.experiments.quest."""

from fern.experiments import experiment

quest = experiment("quest")
