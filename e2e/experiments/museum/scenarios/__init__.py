"""The scenarios. Each runs one part under test, ours or a mistake, among parts that are all ours, and returns the violations.

Nothing depends on timing: a slow process is held at a fault point, a crash happens at one, and a scenario ends when the bus has
nothing left to deliver.
"""
