"""What every service needs around the path of the event: settings, logs, processes, metrics, migrations, and HTTP in `http`."""
