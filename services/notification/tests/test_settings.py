"""Settings that would weaken a live system are refused before anything starts."""

import pytest

from messaging.errors import SettingsError
from notification.settings import ApiSettings, DispatcherSettings

LIVE = {
    "NOTIFICATION_DATABASE_URL": "postgresql+asyncpg://n:n@db.example/n?sslmode=verify-full",
    "PUBSUB_PROJECT_ID": "fern",
    "OPERATOR_READ_TOKENS": f"grace:{'r' * 32}",
    "OPERATOR_WRITE_TOKENS": f"grace:{'w' * 32}",
    "PUBLIC_URL": "https://fern.example",
    "TWILIO_ACCOUNT_SID": "AC" + "1f" * 16,
    "TWILIO_AUTH_TOKEN": "2e" * 16,
    "TWILIO_FROM": "+12025550100",
}


def test_the_dispatcher_calls_every_country_unless_it_is_told_which() -> None:
    assert DispatcherSettings.load(LIVE).countries == frozenset()
    assert DispatcherSettings.load({**LIVE, "SMS_COUNTRIES": "lt, IE"}).countries == {"LT", "IE"}
    with pytest.raises(SettingsError, match="'UK', which is not the code of a country"):
        DispatcherSettings.load({**LIVE, "SMS_COUNTRIES": "UK"})


@pytest.mark.parametrize("sender", ["+12025550100", "12345"])
def test_live_settings_are_accepted(sender: str) -> None:
    assert DispatcherSettings.load({**LIVE, "TWILIO_FROM": sender}).twilio_from == sender


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("NOTIFICATION_DATABASE_URL", "postgresql+asyncpg://n:n@db.example/n", "add .sslmode=verify-full"),
        ("NOTIFICATION_DATABASE_URL", "postgresql+asyncpg://n:n@db.example/n?sslmode=require", "does not verify"),
        ("NOTIFICATION_DATABASE_URL", "postgresql+asyncpg://n:n@127.0.0.1/n?ssl=on", "has the parameter ssl"),
        ("NOTIFICATION_DATABASE_URL", "db.example", "NOTIFICATION_DATABASE_URL is wrong: it is no database URL"),
        ("PUBLIC_URL", "http://fern.example", "PUBLIC_URL is not encrypted"),
        ("PUBLIC_URL", "fern.example", "PUBLIC_URL is no URL"),
        ("PUBLIC_URL", "https://[fern", "PUBLIC_URL is no URL"),
        ("PUSH_JWKS_URL", "http://keys.example", "PUSH_JWKS_URL is not encrypted"),
        ("PUSH_ISSUER", "https://keys.example", "PUSH_ISSUER is for local runs only"),
        ("TWILIO_BASE_URL", "https://proxy.example", "TWILIO_BASE_URL is for local runs only"),
        ("TWILIO_ACCOUNT_SID", "SK" + "1f" * 16, "TWILIO_ACCOUNT_SID is not in Twilio's format"),
        ("TWILIO_AUTH_TOKEN", "2e" * 15 + "2", "TWILIO_AUTH_TOKEN is not in Twilio's format"),
        ("TWILIO_FROM", "Fern Labour", "TWILIO_FROM is not in Twilio's format"),  # no reply is possible to a name
        ("TWILIO_FROM", "+1 202 555 0100", "TWILIO_FROM is not in Twilio's format"),
        ("FERN_CRASH_AT", "relay.published", "FERN_CRASH_AT is for local runs only"),
    ],
)
def test_a_setting_that_would_weaken_a_live_system_is_refused_without_repeating_its_value(
    name: str, value: str, reason: str
) -> None:
    process = ApiSettings if name.startswith("PUSH_") else DispatcherSettings
    with pytest.raises(SettingsError, match=reason) as refused:
        process.load({**LIVE, name: value})

    assert value not in str(refused.value)


@pytest.mark.parametrize("rate", ["nan", "inf", "0"])
def test_a_rate_that_no_clock_can_measure_is_refused(rate: str) -> None:
    with pytest.raises(SettingsError, match=f"SMS_PER_SECOND={rate} is not a number of at least 0.01"):
        DispatcherSettings.load({**LIVE, "SMS_PER_SECOND": rate})
