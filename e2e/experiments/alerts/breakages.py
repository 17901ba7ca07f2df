"""What is broken for each alert, and how it is repaired. Each alert that `fern alerts` evaluates has one entry here.

A fault that is counted happens once, in `begin`: a counter that did not begin at 0 would hide it, and its alert would not fire.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from uuid import uuid4

import httpx
from twilio.request_validator import RequestValidator
from uuid_utils.compat import uuid7

from e2e.support.databases import as_owner
from e2e.support.waiting import until
from e2e.support.world import World
from fern.settings import PROJECT_ID
from messaging.bus import Outgoing
from messaging.envelope import attributes
from messaging.pubsub import PubSub

ENVIRONMENT = {"SMS_QUARANTINE_SECONDS": "600"}  # so that a text that the provider does not list stays in doubt
LATE = {"FERN_CLOCK_OFFSET": "-100"}  # seconds: each event seems to be that old when its text is sent
WRONG_CLOCK = {"FERN_CLOCK_OFFSET": "864000"}
AT_ONCE = 30  # requests; an API admits ten


@dataclass(frozen=True)
class Breakage:
    """`begin` breaks something, `again` is called until all of the alerts fire, and then `repair` undoes it."""

    alerts: tuple[str, ...]
    how: str
    begin: Callable[[], object]
    again: Callable[[], object]
    repair: Callable[[], object]


def nothing() -> None: ...


class Breakages:
    def __init__(self, world: World) -> None:
        self._world = world

    @cached_property
    def _api(self) -> httpx.Client:
        return httpx.Client(base_url=self._world.settings.url("notification-api"), timeout=60, trust_env=False)

    def groups(self) -> tuple[list[Breakage], list[list[Breakage]]]:
        """The faults that last while all others begin and end; and the others, in groups that do not disturb each other."""
        w = self._world
        slow = [
            Breakage(
                ("Retention does not delete",),
                "the clock of a relay is ten days ahead",
                lambda: self._restart("labour-relay", WRONG_CLOCK),
                nothing,
                lambda: self._restart("labour-relay"),
            ),
            Breakage(
                ("Texts stay in doubt",),
                "the provider does not answer a call, and does not list its text",
                self._put_in_doubt,
                nothing,
                self._resolve,
            ),
        ]
        processes = [
            Breakage(
                ("A process is missing",),
                "labour-statistics is killed",
                lambda: w.kill("labour-statistics"),
                nothing,
                lambda: w.start("labour-statistics"),
            ),
            Breakage(
                ("Callbacks of the provider are refused",),
                "callbacks without a signature",
                lambda: self._refused_callbacks(5),
                nothing,
                nothing,
            ),
            Breakage(
                ("Many callers have no valid token",),
                "requests without a token",
                self._unknown_callers,
                nothing,
                nothing,
            ),
            Breakage(
                ("Events become dead letters",),
                "an event without its fields",
                self._publish_poison,
                nothing,
                lambda: w.fern("dlq", "discard", "--all", "--yes"),
            ),
            Breakage(
                ("A consumer fails",),
                "a constraint of the database that no message satisfies",
                self._forbid_messages,
                nothing,
                lambda: self._as_owner("ALTER TABLE notification DROP CONSTRAINT broken"),
            ),
            Breakage(
                ("A process keeps dying",),
                "labour-consumer is killed again and again",
                nothing,
                lambda: self._restart("labour-consumer"),
                nothing,
            ),
        ]
        bus = [
            Breakage(
                ("Events wait in an outbox", "A process waits for a dependency"),
                "the bus is killed",
                lambda: w.kill("pubsub"),
                self._begin_a_labour,
                lambda: w.start("pubsub"),
            ),
            Breakage(
                ("An event is parked",),
                "an attribute that the bus rejects for the tenth time",
                self._spoil_an_event,
                nothing,
                self._repair_the_event,
            ),
        ]
        consumer = [
            Breakage(
                ("Published events are not consumed",),
                "notification-consumer is killed",
                lambda: w.kill("notification-consumer"),
                self._begin_a_labour,
                lambda: w.start("notification-consumer"),
            )
        ]
        dispatcher = [
            Breakage(
                ("Texts wait for the dispatcher",),
                "a limit of one text in 100 s for the sending number",
                lambda: self._restart("notification-dispatcher", {"SMS_PER_SECOND": "0.01"}),
                self._tell,
                lambda: self._restart("notification-dispatcher"),
            )
        ]
        provider = [
            Breakage(
                ("The provider does not take texts",),
                "the provider answers 429",
                self._limit_the_rate,
                nothing,
                lambda: self._clear("rate-limited"),
            )
        ]
        objectives = [
            Breakage(
                ("Many texts fail",),
                "the provider refuses half of the texts",
                lambda: self._fault("refused", rate=0.5),
                self._tell,
                lambda: self._clear("refused"),
            ),
            Breakage(
                _slo("told within 60 s"),
                "the clock of labour-api is 100 s behind, so each text is late",
                lambda: self._restart("labour-api", LATE),
                self._tell,
                lambda: self._restart("labour-api"),
            ),
            Breakage(
                _slo("told once"), "the provider delivers a second text for one of ours", self._double, nothing, nothing
            ),
        ]
        api = [
            Breakage(
                ("An API refuses requests", *_slo("API available")),
                "a locked table, and more requests than labour-api has slots",
                self._overload,
                nothing,
                nothing,
            )
        ]
        return slow, [processes, bus, consumer, dispatcher, provider, objectives, api]

    def _restart(self, process: str, overrides: dict[str, str] | None = None) -> None:
        self._world.kill(process)
        self._world.spawn(process, overrides)
        until(lambda: self._world.is_healthy(process), what=f"{process} is healthy")

    def _forbid_messages(self) -> None:
        self._as_owner("ALTER TABLE notification ADD CONSTRAINT broken CHECK (false) NOT VALID")
        self._tell()

    def _as_owner(self, statement: str) -> None:
        asyncio.run(as_owner(self._world.urls["notification"], statement))

    def _begin_a_labour(self) -> None:
        self._world.begin(self._world.plan("Grace"))

    def _tell(self) -> None:
        for _ in range(5):
            self._begin_a_labour()

    def _limit_the_rate(self) -> None:
        self._fault("rate-limited")
        self._tell()

    def _fault(self, name: str, **settings: float) -> None:
        self._world.sms_sandbox.put(f"/faults/{name}", json={"rate": 1.0, **settings}).raise_for_status()

    def _clear(self, name: str) -> None:
        self._world.sms_sandbox.delete(f"/faults/{name}").raise_for_status()

    def _put_in_doubt(self) -> None:
        self._fault("callbacks-lost")  # a callback would be an answer
        self._fault("list-lag", seconds=3600)
        self._fault("reply-lost", times=1)
        self._begin_a_labour()
        until(
            lambda: self._world.count("notification", "notification WHERE state = 'IN_DOUBT'"),
            what="a text is in doubt",
        )
        self._clear("list-lag")

    def _resolve(self) -> None:
        for row in self._world.sql("notification", "SELECT id FROM notification WHERE state = 'IN_DOUBT'"):
            self._world.fern("sms", "resolve", str(row["id"]), "sent")
        self._clear("callbacks-lost")

    def _refused_callbacks(self, number: int) -> None:
        for _ in range(number):
            self._api.post(f"/webhooks/twilio/status?nid={uuid4()}", data={"MessageStatus": "sent"})

    def _unknown_callers(self) -> None:
        for _ in range(150):
            self._world.labour_api.get("/api/v1/labours")

    def _publish_poison(self) -> None:
        event_id, now = uuid7(), datetime.now(UTC)
        about = attributes(
            id=event_id, source="alerts", type="labour.begun", version=1, subject="poison", time=now, traceparent=""
        )

        async def publish() -> None:
            bus = PubSub(PROJECT_ID)
            await bus.publish("labour.begun", [Outgoing(b"{}", about)])
            await bus.close()

        asyncio.run(publish())

    def _spoil_an_event(self) -> None:
        """Give an event an attribute that the bus rejects. While the bus is down, no relay publishes the event."""
        self._begin_a_labour()
        self._world.sql(
            "labour",
            """UPDATE outbox SET attributes = attributes || jsonb_build_object('spoilt', repeat('x', 1025)), attempts = 9
            WHERE position = (SELECT max(position) FROM outbox WHERE published_at IS NULL AND topic = 'labour.begun')""",
        )

    def _repair_the_event(self) -> None:
        self._world.sql("labour", "UPDATE outbox SET attributes = attributes - 'spoilt' WHERE attributes ? 'spoilt'")
        self._world.fern("outbox", "retry", "--reason", "spoilt")

    def _double(self) -> None:
        self._tell()
        [row] = until(
            lambda: self._world.sql(
                "notification", "SELECT id FROM notification WHERE sid IS NOT NULL ORDER BY id DESC LIMIT 1"
            )
        )
        settings = self._world.environment()
        path = f"/webhooks/twilio/status?nid={row['id']}"
        form = {"MessageSid": f"SM{uuid4().hex}", "MessageStatus": "delivered"}
        validator = RequestValidator(settings["TWILIO_AUTH_TOKEN"])
        signature = validator.compute_signature(settings["PUBLIC_URL"] + path, form)
        self._api.post(path, data=form, headers={"X-Twilio-Signature": signature}).raise_for_status()

    def _overload(self) -> None:
        labour = self._world.plan("Grace")
        url = f"/api/v1/labours/{labour.id}/begin"
        lock = "DO $$ BEGIN LOCK TABLE labour IN ACCESS EXCLUSIVE MODE; PERFORM pg_sleep(1.5); END $$"
        locked = threading.Thread(target=self._world.sql, args=("labour", lock))
        locked.start()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda _: self._world.labour_api.put(url, headers=labour.mother), range(AT_ONCE)))
        locked.join()


def _slo(name: str) -> tuple[str, ...]:
    return tuple(f"SLO {name}: the budget burns {speed}" for speed in ("fast", "slow"))
