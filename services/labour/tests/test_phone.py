"""Which phone numbers may be texted: those of mobile phones in the countries that are listed."""

import pytest
from httpx import AsyncClient

from e2e.support.api import speaking_as
from labour.application.allowances import DEFAULT_ALLOWANCES
from labour.domain.errors import NotAPhoneNumber, PhoneNotSupported
from labour.domain.phone import to_e164
from labour.settings import ApiSettings
from messaging.errors import SettingsError
from tests.labour_parts import api_process, assert_problem, plan

LISTED = DEFAULT_ALLOWANCES.countries


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("+1 (202) 555-0123", "+12025550123"),
        ("+12025550123", "+12025550123"),
        ("+49 151 12345678", "+4915112345678"),
        ("+44 7400 123456", "+447400123456"),
        ("+353 85 123 4567", "+353851234567"),
    ],
)
def test_a_phone_number_is_brought_to_e164(typed: str, wanted: str) -> None:
    assert to_e164(typed, LISTED) == wanted


@pytest.mark.parametrize("typed", ["", "hello", "2125550199", "+1202", "+999123456789", "+12125550199 ext 5"])
def test_what_is_no_phone_number_is_refused_without_repeating_it(typed: str) -> None:
    with pytest.raises(NotAPhoneNumber) as refused:
        to_e164(typed, LISTED)
    assert typed == "" or typed not in str(refused.value)


@pytest.mark.parametrize(
    "typed",
    [
        pytest.param("+19005551234", id="premium"),
        pytest.param("+449098790000", id="premium, British"),
        pytest.param("+33891123456", id="shared cost or premium, French"),
        pytest.param("+18005551234", id="toll-free"),
        pytest.param("+442079460018", id="landline"),
        pytest.param("+447012345678", id="personal number, which forwards at a price"),
        pytest.param("+15005550006", id="personal number, American"),
        pytest.param("+445612345678", id="internet telephony"),
        pytest.param("+445512345678", id="company number"),
        pytest.param("+447640123456", id="pager"),
        pytest.param("+870773111632", id="satellite"),
        pytest.param("+881612345678", id="satellite, global"),
        pytest.param("+883510012345678", id="international network"),
        pytest.param("+18765551234", id="Jamaica, which looks like the United States"),
        pytest.param("+447781123456", id="Guernsey, which looks like Great Britain"),
        pytest.param("+37061234567", id="a country that is not listed"),
    ],
)
def test_a_number_that_is_not_a_mobile_phones_in_a_listed_country_is_refused(typed: str) -> None:
    with pytest.raises(PhoneNotSupported) as refused:
        to_e164(typed, LISTED)
    assert typed not in str(refused.value)


async def test_the_countries_are_a_setting_and_the_refusal_says_what_to_do(labour_url: str) -> None:
    async with api_process(labour_url, SMS_COUNTRIES="lt, IE") as client:
        labour = await plan(client)
        refused = await client.post(f"{labour}/subscribers", json={"name": "Grace", "phone": "+12025550123"})
        added = await client.post(f"{labour}/subscribers", json={"name": "Ona", "phone": "+37061234567"})

    problem = assert_problem(refused, 400, "phone-not-supported")
    assert (problem["fields"][0]["field"], "Use a number of" in problem["detail"]) == ("phone", True)
    assert added.status_code == 201


async def test_a_request_is_not_approved_if_its_country_was_removed_from_the_list_meanwhile(
    labour_client: AsyncClient, labour_url: str
) -> None:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]
    asked = {"token": token, "name": "Grace", "phone": "+12025550123"}
    person = (await labour_client.post("/api/v1/subscriptions", json=asked, headers=speaking_as("grace"))).json()["id"]

    async with api_process(labour_url, SMS_COUNTRIES="IE") as client:
        refused = await client.put(f"{labour}/subscribers/{person}/approve")

    assert_problem(refused, 400, "phone-not-supported")
    assert (await labour_client.get(labour)).json()["subscribers"][0]["state"] == "requested"


def test_a_country_that_does_not_exist_keeps_the_process_from_starting() -> None:
    variables = {"FERN_MODE": "local", "LABOUR_DATABASE_URL": "postgresql+asyncpg://x", "SMS_COUNTRIES": "UK"}
    with pytest.raises(SettingsError, match="'UK', which is not the code of a country"):
        ApiSettings.load(variables)


async def test_an_invitee_gets_the_same_refusal(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]

    asked = {"token": token, "name": "Grace", "phone": "+19005551234"}
    assert_problem(await labour_client.post("/api/v1/subscriptions", json=asked), 400, "phone-not-supported")
