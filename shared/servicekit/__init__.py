"""What every service needs around the event's path: HTTP, problems, settings, logs, processes, migrations, operator routes."""
