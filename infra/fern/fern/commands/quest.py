"""`fern quest`: passed on to the program e2e.experiments.quest."""

from fern.experiments import experiment

quest = experiment(
    "quest", "Put the design to the test: other designs and ours, side by side, against the same faults."
)
