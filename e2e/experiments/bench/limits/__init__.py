"""The least that the work of a stage can cost on this machine: raw asyncpg, sets instead of rows, and no promises.

A limit is no design to copy. It shows how much room is left between our design and PostgreSQL, the bus or the HTTP client.
"""
