"""The tokens of the console's stage, from records as the services have them: read one after the other, so they may differ."""

from typing import Any
from uuid import UUID

from contracts.ids import derived_id
from fern.console.records import Records
from fern.console.tokens import Token, tokens
from fern.console.watch import more_waiting, waiting_at_topics

N1, N2 = (f"01a1e321-46ed-725b-ab9e-dc686dc7621{number}" for number in (1, 2))
GRACE = {"id": N1, "person_id": "p1", "person_name": "Grace", "sid": "SM1", "failure": None, "in_doubt_at": None}
BEGUN = "labour.begun"
S1, S2 = (str(derived_id(UUID(message), "notification.sent")) for message in (N1, N2))


def at(milliseconds: int) -> str:
    return f"2030-01-01T00:00:00.{milliseconds:03}+00:00"


def begun(**changes: Any) -> dict[str, Any]:
    row = {"position": 1, "event_id": "e1", "type": "labour.begun", "request": {"at": at(0)}, "recorded_at": at(10)}
    nothing = dict.fromkeys(("published_at", "discarded_at", "parked_at", "last_error", "cause_id"))
    return {**row, **nothing, "published_at": at(20), **changes}


def claim(consumer: str, event_id: str = "e1", deliveries: int = 1, start: int = 30, **changes: Any) -> dict[str, Any]:
    times = {"claimed_at": at(start), "completed_at": at(start + 5)}
    return {
        "consumer": consumer,
        "event_id": event_id,
        "status": "COMPLETED",
        "deliveries": deliveries,
        **times,
        **changes,
    }


def message(**changes: Any) -> dict[str, Any]:
    times = {"created_at": at(32), "sending_at": at(40), "sent_at": at(60), "delivered_at": None}
    return {**GRACE, "event_id": "e1", "event_type": BEGUN, "state": "SENT", **times, **changes}


def text(**changes: Any) -> dict[str, Any]:
    facts = {"sid": "SM1", "to": "+1", "direction": "outbound-api", "status": "delivered"}
    return {**facts, "created_at": at(50), "updated_at": at(90), **changes}


def made(**sources: Any) -> dict[str, Token]:
    none: dict[str, Any] = {
        "events": [begun()],
        "statuses": [],
        "claims": [],
        "messages": [],
        "texts": [],
        "phones": {},
    }
    return {token.id: token for token in tokens(Records(**{**none, **sources}))}


def stations(token: Token) -> list[str]:
    return [station for station, _ in token.hops]


def test_a_token_has_every_hop_that_was_recorded_in_order() -> None:
    status = begun(position=2, event_id=S1, type="notification.sent", request=None, cause_id="e1", recorded_at=at(60))
    claims = [claim("notification"), claim("statistics", start=33), claim("labour", S1, start=80)]

    found = made(statuses=[{**status, "published_at": at(70)}], claims=claims, messages=[message()], texts=[text()])

    assert found["e1"].hops[0][1] + 10 == found["e1"].hops[1][1]
    assert stations(found["e1"]) == ["client", "outbox", "topic", "consumer", "ledger"]
    assert stations(found["e1/statistics"]) == ["topic", "statistics"]
    assert stations(found[f"e1/{N1}"]) == ["ledger", "dispatcher", "provider", "phones"]
    assert stations(found[S1]) == ["back-outbox", "back-topic", "labour-consumer", "told"]
    for token in found.values():
        assert [when for _, when in token.hops] == sorted(when for _, when in token.hops)
        if token.cause:
            assert token.hops[0][1] >= found[token.cause].hops[0][1]


def test_each_status_is_of_the_message_that_it_is_about_whatever_the_order_of_their_records() -> None:
    one = begun(position=2, event_id=S1, type="notification.sent", request=None, cause_id="e1", recorded_at=at(60))
    other = {**one, "position": 3, "event_id": S2}
    alan = message(id=N2, person_id="p2", person_name="Alan", sid="SM2", sent_at=at(55))

    found = made(
        statuses=[one, other],
        claims=[claim("notification")],
        messages=[message(), alan],
        texts=[text(), text(sid="SM2")],
    )

    assert {found[status].cause for status in (S1, S2)} == {f"e1/{N1}", f"e1/{N2}"}
    assert (found[S1].cause, found[S2].cause) == (f"e1/{N1}", f"e1/{N2}")


def test_an_effect_whose_cause_is_not_known_yet_is_left_out() -> None:
    status = begun(position=2, event_id=S1, type="notification.sent", request=None, cause_id="e1")

    unclaimed = made(statuses=[status], messages=[message()], texts=[text()])
    unseen = made(
        statuses=[status], claims=[claim("notification")], messages=[message()]
    )  # the sandbox was read before

    assert unclaimed.keys() == {"e1", "e1/statistics"}
    assert (unclaimed["e1"].state, unclaimed["e1"].words) == ("waits", "waits for notification-consumer")
    assert stations(unseen[f"e1/{N1}"]) == ["ledger", "dispatcher"]
    assert S1 not in unseen


def test_a_relay_that_died_before_the_mark_has_published_all_the_same() -> None:
    found = made(events=[begun(published_at=None)], claims=[claim("notification")])

    assert stations(found["e1"]) == ["client", "outbox", "topic", "consumer", "ledger"]


def test_duplicates_turn_back_at_the_claims_and_never_before_the_effect() -> None:
    found = made(claims=[claim("notification", deliveries=3)])

    duplicates = [token for token in found.values() if token.kind == "duplicate"]
    assert [stations(one) for one in duplicates] == [["topic", "ledger", "topic"]] * 2
    assert all(one.hops[0][1] >= found["e1"].hops[-1][1] for one in duplicates)


def test_a_message_in_doubt_is_on_the_phone_and_a_question_waits_at_the_dispatcher() -> None:
    doubted = message(state="IN_DOUBT", sid=None, sent_at=None, in_doubt_at=at(70))
    claims, phones = [claim("notification")], {"p1": "+1"}

    open = made(claims=claims, messages=[doubted], texts=[text()], phones=phones)
    answered = made(
        claims=claims, messages=[{**doubted, "state": "SENT", "sid": "SM1", "sent_at": at(95)}], texts=[text()]
    )

    assert stations(open[f"e1/{N1}"]) == ["ledger", "dispatcher", "provider", "phones"]
    assert (stations(open[f"e1/{N1}/doubt"]), open[f"e1/{N1}/doubt"].state) == (["dispatcher"], "waits")
    assert (stations(answered[f"e1/{N1}/doubt"]), answered[f"e1/{N1}/doubt"].state) == (
        ["dispatcher", "provider"],
        "gone",
    )


def test_what_is_set_aside_stays_where_it_is_and_says_why() -> None:
    parked = made(events=[begun(published_at=None, parked_at=at(30), last_error="too long")])["e1"]
    refused = made(claims=[claim("notification")], messages=[message(state="FAILED", sid=None, failure="opted out")])[
        f"e1/{N1}"
    ]
    superseded = made(claims=[claim("notification")], messages=[message(state="SUPERSEDED", sending_at=None)])[
        f"e1/{N1}"
    ]

    assert (stations(parked)[-1], parked.state, parked.words) == ("outbox", "bad", "parked: too long")
    assert (stations(refused)[-1], refused.state, refused.words) == ("dispatcher", "bad", "opted out")
    assert (stations(superseded), superseded.state) == (["ledger"], "gone")


def test_a_dead_letter_does_not_wait_for_the_consumer_that_could_not_handle_it() -> None:
    status = begun(position=2, event_id=S1, type="notification.sent", request=None, cause_id="e1")
    sent = {"statuses": [status], "claims": [claim("notification")], "messages": [message()], "texts": [text()]}

    event = made(dead={("notification", "e1")})
    others = made(**sent, dead={("statistics", "e1"), ("labour", S1)})
    given_up = made(claims=[claim("notification", status="DISCARDED")], dead={("notification", "e1")})

    for dead in (event["e1"], others["e1/statistics"], others[S1]):
        assert (dead.state, dead.words) == ("bad", "dead letter: see Set aside")
    assert (event["e1/statistics"].state, others["e1"].state, given_up["e1"].state) == ("waits", "done", "gone")


def test_a_station_counts_what_waits_there_beside_the_tokens_that_are_drawn() -> None:
    drawn = list(
        made(events=[begun(), begun(position=2, event_id="e2"), begun(event_id="e3", published_at=None)]).values()
    )
    backlog = [
        {"subscription": "notification.labour.begun", "topic": "labour.begun", "unacked": 30, "oldest_seconds": 9.0},
        {"subscription": "statistics.labour.begun", "topic": "labour.begun", "unacked": 4, "oldest_seconds": 0.02},
        {"subscription": "labour.notification.sent", "topic": "notification.sent", "unacked": 7, "oldest_seconds": 2.0},
        {"subscription": "labour.begun.dlq", "topic": "labour.begun.dlq", "unacked": 5, "oldest_seconds": 900.0},
    ]

    more = more_waiting(drawn, {"outbox": 3, "ledger": 0, **waiting_at_topics(backlog)})

    assert more == {"outbox": 2, "ledger": 0, "topic": 26, "back-topic": 7}  # both events wait for two consumers each
