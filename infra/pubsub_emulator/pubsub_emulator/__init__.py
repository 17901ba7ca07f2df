"""A durable Pub/Sub emulator: every answered request is on disk, and faults can be switched on.

Read in this order: `message` (what is delivered), `ready`, `leases` and `subscription` (its way through one subscription),
`catalog` (topics and subscriptions), `broker` (fan-out, acks, dead letters), `store` and `sql` (what is on disk), `wire`,
`publisher`, `subscriber`, `stream` and `push` (the outside), `server` and `command` (the process).
"""
