"""`fern pubsub`: the commands of the Pub/Sub emulator."""

from pubsub_emulator.command import main as pubsub

__all__ = ["pubsub"]
