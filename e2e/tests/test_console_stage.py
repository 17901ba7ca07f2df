"""The console's stage, by what a person sees: where each token is at each moment, and what has appeared by then."""

from itertools import count, pairwise
from typing import Any

from playwright.sync_api import Browser

from e2e.support.console_film import look_at, moved_by_hand, watch
from e2e.support.installation import Installation

THERE = ["client", "outbox", "topic", "consumer", "ledger", "dispatcher", "provider", "phones"]
BACK = ["callback", "back-outbox", "back-topic", "labour-consumer", "told"]

Track = list[dict[str, Any]]  # of one token: every look at it, with the number of the look


def test_an_event_travels_along_the_stage_and_nothing_is_seen_before_its_cause(
    browser: Browser, installation: Installation
) -> None:
    with moved_by_hand(browser, installation.settings.url("console"), "Barbara", "Radia") as screen:
        texts = screen.page.locator(".phone .body").count()
        screen.duplicate("labour.begun")
        screen.switch("Slow motion, 1/20").click()

        screen.press("Begin", "The labour has begun.")
        looks = watch(screen, people=2)

        [event], both, statuses = (tracks(looks, kind) for kind in ("event", "text", "status"))
        assert [one[0]["name"] for one in both] == ["Barbara", "Radia"]  # it splits into one text a person
        assert [one[0]["name"] for one in statuses] == ["Barbara ✓", "Barbara ✓✓", "Radia ✓", "Radia ✓✓"]
        assert [stations(event), *map(stations, both)] == [THERE[:5], THERE[4:], THERE[4:]]
        assert all(stations(one) == BACK[-len(stations(one)) :] for one in statuses)
        for track in (event, *both):  # to the right, and never back
            assert all(before["x"] <= after["x"] + 0.5 for before, after in pairwise(track))
        for track in statuses:  # to the left
            assert all(before["x"] >= after["x"] - 0.5 for before, after in pairwise(track))
        assert len({round(one["x"]) for one in event}) > 2 * len(THERE[:5])  # it is seen between the stations, too

        for track in (duplicates := tracks(looks, "duplicate")):  # to the claims, and back
            places = [one["x"] for one in track]
            turn = (
                places.index(max(places)) + 1
            )  # a look may be taken when the token has turned and its station is not noted yet
            there, back = places[:turn], places[turn:]
            assert (there, back) == (sorted(there), sorted(back, reverse=True))
            assert first(track, "ledger")
            assert (track[-1]["at"], back[-1] <= there[0]) == ("topic", True)
            assert track[0]["look"] >= first(event, "ledger")
        assert duplicates

        reached = [first(one, "phones") for one in both]
        told = [first(one, "told") for one in statuses[::2]]  # when it was sent
        assert all(one[0]["look"] >= first(event, "ledger") for one in both)
        for text, sent, delivered in zip(both, statuses[::2], statuses[1::2], strict=True):
            assert first(text, "provider") <= sent[0]["look"]
            assert first(text, "phones") <= delivered[0]["look"]
        for look in looks:
            assert len(look["texts"]) - texts == sum(when <= look["look"] for when in reached)
            assert sum("✓" in words for words in look["told"]) == sum(when <= look["look"] for when in told)


def test_slow_motion_keeps_the_order_and_takes_four_to_twenty_times_longer_and_a_pause_stops_every_token(
    browser: Browser, installation: Installation
) -> None:
    with moved_by_hand(browser, installation.settings.url("console"), "Ken") as screen:
        screen.press("Begin", "The labour has begun.")
        watch(screen, people=1)

        texts = len(look_at(screen)["texts"])

        def replayed(pause_at: int = 0) -> dict[tuple[str, str], int]:
            """In which frame each token is first seen at each station. The film may pause, which counts no frame."""
            screen.page.locator("#events button", has_text="begun").first.click()
            screen.button("Play again on the stage").click()
            seen = dict[tuple[str, str], int]()
            for number in count(1):
                look = look_at(screen)
                for token in look["tokens"]:
                    seen.setdefault((token["id"], token["at"]), number)
                if look["film"] == "idle":
                    return seen
                if number == pause_at:
                    screen.button("Pause").click()
                    before = look_at(screen)["tokens"]
                    screen.page.clock.run_for(5000)
                    assert before == look_at(screen)["tokens"] != []
                    screen.button("Go on").click()
            raise AssertionError

        live = replayed()
        screen.switch("Slow motion, 1/20").click()
        slow = replayed(pause_at=20)

        order = [live[hop] for hop in sorted(slow, key=lambda hop: slow[hop]) if hop in live]
        assert all(
            before <= after + 1 for before, after in pairwise(order)
        )  # two hops of a frame may be seen in the next one
        assert {station for _, station in slow} >= {*THERE[1:], *BACK}
        first_slow, last_slow, first_live, last_live = (pick(of.values()) for of in (slow, live) for pick in (min, max))
        took, slow_took = (
            last_live - first_live,
            last_slow - first_slow,
        )  # a gap is stretched by 4 if it is cut, up to 20
        assert 4 * (took - 2) <= slow_took <= 20 * (took + 2)
        assert len(look_at(screen)["texts"]) == texts  # a replay sends nothing


def test_for_readers_who_want_no_motion_tokens_are_only_ever_at_a_station(
    browser: Browser, installation: Installation
) -> None:
    with moved_by_hand(browser, installation.settings.url("console"), "Ken", reduced_motion="reduce") as screen:
        screen.press("Begin", "The labour has begun.")

        looks = watch(screen, people=1)

        assert len({token["at"] for look in looks for token in look["tokens"]}) > 5
        for look in looks:
            for token in look["tokens"]:
                left, right = look["stations"][token["at"]]
                assert left <= token["x"] <= right, token


def tracks(looks: list[dict[str, Any]], kind: str) -> list[Track]:
    """Of all tokens of a kind, by name."""
    found = dict[str, Track]()
    for look in looks:
        for token in look["tokens"]:
            if token["kind"] == kind:
                found.setdefault(token["id"], []).append({**token, "look": look["look"]})
    return sorted(found.values(), key=lambda track: str(track[0]["name"]))


def stations(track: Track) -> list[str]:
    return list(dict.fromkeys(one["at"] for one in track))


def first(track: Track, station: str) -> int:
    return next(int(one["look"]) for one in track if one["at"] == station)
