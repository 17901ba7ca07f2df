"""The one-shot jobs, done after the backing processes are healthy and before the services start: migrations and topology."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fern.errors import JobFailed
from fern.settings import PROJECT_ROOT, SERVICES

TIMEOUT = 120.0


def jobs() -> dict[str, list[str]]:
    """The command of each job. They do not depend on each other."""
    migrations = {f"{service} migrations": _migration(service) for service in SERVICES}
    topology = [str(Path(sys.executable).with_name("fern")), "topology", "apply"]
    return {**migrations, "topics and subscriptions": topology}


def migrate(service: str, url: str, revision: str = "head") -> None:
    """Bring the service's database at this SQLAlchemy URL of its owner to a revision of its schema. Raises `JobFailed`."""
    environment = {"FERN_MODE": "local", f"{service.upper()}_DATABASE_URL": url}
    run_job(f"{service} migrations", _migration(service, revision), environment)


def run_job(title: str, command: list[str], environment: dict[str, str]) -> None:
    """Runs the command with these variables added to our own. Raises `JobFailed` with the end of its output."""
    where: dict[str, Any] = {"cwd": PROJECT_ROOT, "env": {**os.environ, **environment}}
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        subprocess.run(command, check=True, timeout=TIMEOUT, **where, **output)
    except subprocess.TimeoutExpired as error:
        raise JobFailed(f"{title}: not done after {TIMEOUT:.0f} s.", command=" ".join(command)) from error
    except subprocess.CalledProcessError as error:
        last_lines = "\n".join(error.stdout.splitlines()[-15:])
        raise JobFailed(f"{title}: failed.", details=last_lines, command=" ".join(command)) from error


def _migration(service: str, revision: str = "head") -> list[str]:
    return [sys.executable, "-m", "alembic", "-c", f"services/{service}/alembic.ini", "upgrade", revision]
