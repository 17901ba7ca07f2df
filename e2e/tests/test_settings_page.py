"""docs/settings.md has every setting, as the code describes it."""

import re
import subprocess
import sys

import pytest

from e2e.experiments import settings_page
from e2e.support.process_settings import LOAD, read_by, without_settings
from fern.settings import PROJECT_ROOT, SECRETS

OPERATORS = {"OPERATOR_READ_TOKENS", "OPERATOR_WRITE_TOKENS"}
TWILIO = {"TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN", "TWILIO_FROM"}
LABOUR, NOTIFICATION, BUS = {"LABOUR_DATABASE_URL"}, {"NOTIFICATION_DATABASE_URL"}, {"PUBSUB_PROJECT_ID"}


def test_the_page_is_as_the_program_writes_it() -> None:
    assert settings_page.PAGE.read_text() == settings_page.page(), "run `python -m e2e.experiments.settings_page`"


def test_every_variable_that_the_services_read_is_on_the_page() -> None:
    page, read = settings_page.page(), settings_page.read_by_the_services()

    assert {"SECURITY_LOG_KEY", "TWILIO_BASE_URL", "LOG_LEVEL"} <= read.keys()
    assert {name: file for name, file in read.items() if f"`{name}`" not in page} == {}
    for process in LOAD:
        assert {name for name in read_by(process) if not name.endswith("_FILE") and f"`{name}`" not in page} == set()


def test_a_description_goes_on_in_deeper_lines_and_ends_with_them() -> None:
    listed = """What it reads:

    HOST, PORT   the address, which
                 may be any (127.0.0.1, 80)
    LEVEL        how much is logged

    And a paragraph.
    """

    assert settings_page.entries(listed) == {
        "HOST, PORT": "the address, which may be any (127.0.0.1, 80)",
        "LEVEL": "how much is logged",
    }


@pytest.mark.system
@pytest.mark.parametrize(
    ("process", "required"),
    [
        ("labour-api", {*LABOUR, *OPERATORS, "JWKS_URL", "TOKEN_ISSUER"}),
        ("labour-relay", {*LABOUR, *BUS}),
        ("labour-consumer", {*LABOUR, *BUS}),
        ("labour-statistics", {*LABOUR, *BUS}),
        ("notification-api", {*NOTIFICATION, *BUS, *OPERATORS, "PUBLIC_URL", "TWILIO_AUTH_TOKEN"}),
        ("notification-relay", {*NOTIFICATION, *BUS}),
        ("notification-consumer", {*NOTIFICATION, *BUS}),
        ("notification-dispatcher", {*NOTIFICATION, *TWILIO, "PUBLIC_URL"}),
    ],
)
def test_a_process_without_settings_asks_for_its_own_and_for_no_secret_of_another(
    process: str, required: set[str]
) -> None:
    service, _, role = process.partition("-")

    started = subprocess.run(
        [sys.executable, "-m", service, role],
        cwd=PROJECT_ROOT,
        env=without_settings(),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert started.returncode == 78, started.stderr
    assert set(re.findall(r"^  - ([A-Z_]+) is not set", started.stderr, re.MULTILINE)) == required
    given = {secret for secret, processes in SECRETS.items() if process in processes}
    assert required & SECRETS.keys() == given - {"TOKEN_SECRET"}  # of local mode only
