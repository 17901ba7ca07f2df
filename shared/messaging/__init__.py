"""The path of an event from one service's transaction into another's, so that its effect happens once.

Read the modules in the order an event passes through them: aggregate, unit_of_work, outbox, relay, bus, pubsub, receiver,
consumer, claims. Beside the path are wakeups, retention, outbox_admin and faults. The package knows no event by name.
"""
