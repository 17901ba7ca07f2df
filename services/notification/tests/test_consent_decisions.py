"""Which texts wait and who is asked: the decision as a pure function, and the answers that come in over HTTP."""

from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from e2e.support.databases import connect, fresh_database
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer
from notification.domain.consent import Consents, ConsentState, Contact, contacts, decide

from .consent_parts import Course, handle, states
from .sms_parts import PHONE, Api, PostOffice, notification
from .test_webhooks import post_signed

PHONES = [f"+120255501{number:02}" for number in range(6)]


def contact(phone: str, mother: str = "Ada") -> Contact:
    return Contact(uuid7(), uuid7(), uuid7(), "Grace", phone, mother)


@given(
    st.lists(st.sampled_from(PHONES), max_size=12),
    st.fixed_dictionaries({phone: st.sampled_from(ConsentState) for phone in PHONES}),
    st.sets(st.sampled_from(PHONES)),
)
def test_a_text_waits_if_and_only_if_its_number_is_asked_and_each_number_to_ask_gets_one_question(
    recipients: list[str], consents: dict[str, ConsentState], ask: set[str]
) -> None:
    texts, known = [notification(phone) for phone in recipients], [contact(phone) for phone in recipients + PHONES]

    pending, waiting = decide(texts, known, Consents(consents, ask))

    assert waiting == [one for one in texts if consents[one.phone] is ConsentState.ASKED]
    questions = [one for one in pending if one.event_type == "consent.requested"]
    assert [one for one in pending if one not in questions] == [one for one in texts if one not in waiting]
    assert sorted(one.phone for one in questions) == sorted(ask)


def test_the_first_who_wants_a_number_is_named_in_the_question() -> None:
    [question], _ = decide([], [contact(PHONE, "Ada"), contact(PHONE, "Eve")], Consents({}, [PHONE]))

    assert "Ada would like to text you" in question.body


def test_the_question_beside_a_text_has_an_event_id_that_follows_from_the_event() -> None:
    """The ledger has one row for each event, person and channel; a repetition makes the same id."""
    begun, text = Course().begin(), notification()

    [once], [again] = (contacts(begun.id, begun.event, [text]) for _ in range(2))

    assert once == again
    assert once.event_id != begun.id


def test_a_question_is_in_the_trace_of_the_event_that_causes_it() -> None:
    traceparent = f"00-{'a' * 32}-{'1' * 16}-01"
    added, begun = (course := Course()).add(), course.begin()

    for one, texts in ((added, []), (begun, [notification()])):
        [known] = contacts(one.id, one.event, texts, traceparent)
        [question], _ = decide([], [known], Consents({}, [known.phone]))

        assert question.traceparent == traceparent


async def test_a_yes_over_http_releases_what_waits(office: PostOffice, api: Api) -> None:
    await handle(office, (course := Course()).add(), course.begin())

    assert await post_signed(api, "/webhooks/twilio/inbound", {"From": PHONE, "Body": "Yes."}) == 200

    assert ("labour.begun", "PENDING") in await states(office)


async def test_opt_outs_from_before_are_refusals(postgres: TemporaryServer) -> None:
    url = await fresh_database(postgres, "notification", template="template0")
    migrate("notification", url, "0004")
    connection = await connect(url)
    try:
        await connection.execute("INSERT INTO suppression (phone, since) VALUES ($1, '2026-11-01')", PHONE)
        migrate("notification", url, "0005")

        [refused] = await connection.fetch("SELECT * FROM consent")
        assert (refused["phone"], refused["state"], refused["answered_at"].day) == (PHONE, "REFUSED", 1)
    finally:
        await connection.close()
