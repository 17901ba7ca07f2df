"""The mistakes, each as small as possible: what was done, why it looks right, and what happens. Along the path of an event."""

from e2e.experiments.museum.exhibits import commands, relays, consumers, senders, projections  # noqa: F401, I001  # in this order
