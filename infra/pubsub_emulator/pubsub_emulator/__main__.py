"""`python -m pubsub_emulator serve …`, for those who need the process itself and not a script around it."""

from pubsub_emulator.command import pubsub

pubsub()
