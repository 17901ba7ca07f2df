"""`fern alerts`: runs e2e.experiments.alerts."""

from fern.experiments import experiment

alerts = experiment("alerts", needs="promql_parser")
