"""A durable Pub/Sub emulator: what it answered is on disk, and it can be broken on purpose.

Read in this order: `message` (what is delivered), `ready`, `leases` and `subscription` (its way through one subscription),
`catalog` (topics and subscriptions), `broker` (fan-out, acks, dead letters), `store` and `sql` (what is on disk), `wire`,
`publisher`, `subscriber`, `stream` and `push` (the outside), `server` and `command` (the process).
"""
