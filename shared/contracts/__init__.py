"""The events that both services agree on: the structs are in `contracts.events`, decoding is in `contracts.registry`.

An event type is a name, a version and a frozen struct. Adding an optional field keeps the version, and consumers ignore fields
they do not know. Anything else is a new version under the same name, with an upcaster from the one before
(`contracts.upcasters`). A consumer of a release without that version dead-letters it: upgrade consumers before the producer.
The JSON Schemas in `schemas/` are what was published: a test fails when a struct no longer matches its schema.
"""
