"""The designs of the two articles that FernLabour began with, as small programs with tables of their own.

They do what the articles describe and no more: no token, no idempotency key, no rate limit, no order, no ledger. Where the
articles leave something open, the faster way was chosen (the unpublished events have a partial index).
"""
