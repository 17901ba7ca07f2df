"""Writes docs/settings.md, one page for all settings: python -m e2e.experiments.settings_page

A setting is an environment variable. It is described once, where it is read, in a docstring that lists `NAME   what it is`, with
the default in brackets. A description may go on in the next, deeper line.
"""

import re
import sys
from pathlib import Path
from types import ModuleType

import fern.settings
import labour.settings
import notification.settings
import servicekit.http.http_limits
import servicekit.http.operator_access
import servicekit.metrics_export
import servicekit.monitor
import servicekit.process
import servicekit.telemetry
import servicekit.worker_settings
from e2e.experiments.documentation import DOCS, markdown_table, write
from e2e.support.process_settings import LOAD, read_by
from fern.settings import PROJECT_ROOT

PAGE = DOCS / "settings.md"
ENTRY = re.compile(r"^ *(?P<names>[A-Z][A-Z0-9_]+…?(?:, [A-Z][A-Z0-9_]+…?)*)  +(?P<text>\S.*)$")
READ = re.compile(r"\b(?:environment|settings|variables|os\.environ)\.?(?:[a-z_]+\(|\[)\s*\"([A-Z][A-Z0-9_]+)\"")
SERVICES = {"The Labour service": "labour", "The Notification service": "notification"}  # by the title of their section
INTRODUCTION = """# Settings

Every setting is an environment variable. Outside `FERN_MODE=local` a setting without a default must be set, and development
values are refused: the process lists all problems at once and ends with exit code 78. Values in brackets are defaults; *local*
is the default of local mode. This page is written by `.venv/bin/python -m e2e.experiments.settings_page` from the docstrings of
the files that it names. A test compares it with them, and with the variables that the code reads.

A secret `NAME` can be given as `NAME_FILE` instead, the path of a file that contains it; whitespace at the end is removed. This
works for `LABOUR_DATABASE_URL`, `NOTIFICATION_DATABASE_URL`, `OPERATOR_READ_TOKENS`, `OPERATOR_WRITE_TOKENS`,
`TWILIO_ACCOUNT_SID`, `TWILIO_AUTH_TOKEN`, `TWILIO_FROM`, `TOKEN_SECRET` and `SECURITY_LOG_KEY`. Setting both is refused, and so
is a file that cannot be read. Outside local mode a file that other users can write is refused as well, and one that every user
can read is a warning in the log.
"""
OF_A_SERVICE = "Each process reads its own settings only, so that it can be given no other secret."
# Title, introduction, the module, and the docstring that describes its variables.
SECTIONS: tuple[tuple[str, str, ModuleType, str | None], ...] = (
    ("The Labour service", OF_A_SERVICE, labour.settings, labour.settings.ApiSettings.__doc__),
    ("The Notification service", OF_A_SERVICE, notification.settings, notification.settings.__doc__),
    ("The workers", "The relay of both services.", servicekit.worker_settings, servicekit.worker_settings.__doc__),
    ("The HTTP servers", "The API of both services.", servicekit.http.http_limits, servicekit.http.http_limits.__doc__),
    (
        "The operators' listeners",
        "The API of both services.",
        servicekit.http.operator_access,
        servicekit.http.operator_access.__doc__,
    ),
    ("Every process", "Every process of both services.", servicekit.process, servicekit.process.__doc__),
    ("Traces", "Every process of both services.", servicekit.telemetry, servicekit.telemetry.__doc__),
    ("Probes and metrics", "Every process of both services.", servicekit.monitor, servicekit.monitor.__doc__),
    (
        "Exported metrics",
        "Every process of both services.",
        servicekit.metrics_export,
        servicekit.metrics_export.__doc__,
    ),
    (
        "The local system",
        "The `fern` command, which sets all others for what it starts.",
        fern.settings,
        fern.settings.__doc__,
    ),
)


def entries(docstring: str) -> dict[str, str]:
    """The descriptions by the names as they are listed, such as `HOST, PORT`."""
    found, last, depth = dict[str, str](), "", 0
    for line in docstring.replace('"""', "   ").splitlines():
        indent = len(line) - len(line.lstrip())
        if entry := ENTRY.match(line):
            last, depth = entry["names"], entry.start("names")
            found[last] = entry["text"].strip()
        elif last and line.strip() and indent > depth:
            found[last] += f" {line.strip()}"
        else:
            last = ""
    return found


def page() -> str:
    parts = [INTRODUCTION]
    for title, introduction, module, docstring in SECTIONS:
        service = SERVICES.get(title)
        rows = [("variable", "read by", "what it is") if service else ("variable", "what it is")]
        for names, text in entries(docstring or "").items():
            variables = ", ".join(f"`{name}`" for name in names.split(", "))
            rows.append((variables, readers(service, names), text) if service else (variables, text))
        parts += [
            f"## {title}",
            f"{introduction} [{_path(module).name}](../{_path(module)})",
            "\n".join(markdown_table(rows, "|---|---|---|" if service else "|---|---|")),
        ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def readers(service: str, names: str) -> str:
    """The processes of a service that read one of these settings, of which one may be the beginning of several: `HTTP_…`."""
    listed = names.split(", ")
    of_service = {process.partition("-")[2]: read_by(process) for process in LOAD if process.startswith(service)}
    found = [
        role
        for role, read in of_service.items()
        if any(
            name in read or (name.endswith("…") and any(one.startswith(name[:-1]) for one in read)) for name in listed
        )
    ]
    return "all" if len(found) == len(of_service) else ", ".join(found)


def _path(module: ModuleType) -> Path:
    assert module.__file__
    return Path(module.__file__).relative_to(PROJECT_ROOT)


def read_by_the_services() -> dict[str, str]:
    """Every variable that the services and what they share read, with a file that reads it."""
    found = dict[str, str]()
    for folder in ("services", "shared"):
        for path in sorted((PROJECT_ROOT / folder).rglob("*.py")):
            if "tests" not in path.parts:
                found |= {name: str(path.relative_to(PROJECT_ROOT)) for name in READ.findall(path.read_text())}
    return found


if __name__ == "__main__":
    write({PAGE: page()})
    sys.stdout.write(f"wrote {PAGE.relative_to(PROJECT_ROOT)}\n")
