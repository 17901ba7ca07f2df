"""`python -m fern.pubsub serve …`, for those who need the process itself and not a script around it."""

from fern.pubsub.command import pubsub

pubsub()
