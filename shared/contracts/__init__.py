"""The events that both services agree on: the structs are in `contracts.events`, decoding is in `contracts.registry`.

An event type is a name, a version and a frozen struct. Adding an optional field keeps the version; anything else is a new
version under the same name. Consumers ignore fields they do not know, so a producer may always be newer than its readers.
The JSON Schemas in `schemas/` are what was published: a test fails when a struct no longer matches its schema.
"""
