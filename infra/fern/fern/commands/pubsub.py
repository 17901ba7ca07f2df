"""`fern pubsub`: the commands of the Pub/Sub emulator."""

from pubsub_emulator.command import pubsub

__all__ = ["pubsub"]
