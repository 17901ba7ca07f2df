"""A durable Pub/Sub emulator: what it answered is on disk, and it can be broken on purpose.

Read in this order: `message` (what is delivered), `subscription` (its state in memory), `broker` (topics, fan-out, dead letters),
`store` and `sql` (what is on disk), `publisher`, `subscriber` and `stream` (the RPCs), `server` and `command` (the process).
"""
