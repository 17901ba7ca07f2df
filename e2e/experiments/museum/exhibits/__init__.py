"""The mistakes, each as small as possible: what was done, why it looks right, and what happens."""

from e2e.experiments.museum.exhibit import registered
from e2e.experiments.museum.exhibits import commands, consents, consumers, projections, relays, senders

_PARTS = (commands, relays, consumers, consents, senders, projections)  # along the path of an event
EXHIBITS = [exhibit for part in _PARTS for exhibit in registered if exhibit.mistake.__module__ == part.__name__]
