"""The whole system, its real processes, seen from outside: HTTP, SQL and signals only."""
