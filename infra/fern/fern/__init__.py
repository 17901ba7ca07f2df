"""The `fern` command and what it runs on this machine. The services import nothing of it."""
