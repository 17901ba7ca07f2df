"""Maps each error of this service to an HTTP problem. No other module does."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from labour.domain import errors
from messaging.errors import LockHeld
from servicekit.http.problems import Problem
from servicekit.idempotency import KeyReused

SOON = {"Retry-After": "1"}

REFUSALS = (errors.HiddenLabour, errors.InviteInvalid)  # in the security log, although their answer is 404


def _is(status: int, name: str, headers: Mapping[str, str] | None = None) -> Callable[[Exception], Problem]:
    return lambda error: Problem(status, name, str(error), headers)


def _about_a_field(name: str, field: str) -> Callable[[Exception], Problem]:
    return lambda error: Problem(400, name, str(error), fields=[{"field": field, "problem": str(error)}])


PROBLEMS: Mapping[type[Exception], Callable[[Any], Problem]] = {
    errors.NoSuchLabour: _is(404, "no-such-labour"),
    errors.NotYours: _is(403, "not-yours"),
    errors.VersionChanged: _is(412, "version-changed"),
    errors.TooBusy: _is(409, "too-busy", SOON),
    errors.UnfinishedLabour: lambda error: Problem(
        409, "unfinished-labour", str(error), labour_id=str(error.labour_id)
    ),
    errors.LabourAlreadyBegun: _is(409, "labour-already-begun"),
    errors.LabourAlreadyCompleted: _is(409, "labour-already-completed"),
    errors.LabourNotBegun: _is(409, "labour-not-begun"),
    errors.ContractionRunning: _is(409, "contraction-running"),
    errors.NoSuchContraction: _is(404, "no-such-contraction"),
    errors.ImpossibleTimes: _is(422, "impossible-times"),
    errors.NoSuchUpdate: _is(404, "no-such-update"),
    errors.AnnouncementSent: _is(409, "announcement-sent"),
    errors.TooSoon: lambda error: Problem(
        429, "too-soon", str(error), {"Retry-After": str(math.ceil(error.wait.total_seconds()))}
    ),
    errors.InviteInvalid: _is(404, "invite-invalid"),
    errors.NotSubscribed: _is(404, "not-subscribed"),
    errors.NotPossibleNow: _is(409, "not-possible-now"),
    errors.AlreadySubscribed: _is(409, "already-subscribed"),
    errors.RosterFull: _is(409, "roster-full"),
    errors.TooMany: lambda error: Problem(409, f"too-many-{error.what}", str(error)),
    errors.DayUsedUp: lambda error: Problem(
        429,
        "daily-limit",
        str(error),
        {"Retry-After": str(math.ceil(error.wait.total_seconds()))},
        limit_of=error.what,
    ),
    errors.NotAPhoneNumber: _about_a_field("not-a-phone-number", "phone"),
    errors.PhoneNotSupported: _about_a_field("phone-not-supported", "phone"),
    errors.TextNotAllowed: lambda error: Problem(
        400, "text-not-allowed", str(error), fields=[{"field": error.field, "problem": error.problem}]
    ),
    LockHeld: lambda _: Problem(
        409, "request-in-flight", "A request with this Idempotency-Key is still being handled. Try again.", SOON
    ),
    KeyReused: lambda _: Problem(
        422, "idempotency-key-reused", "This Idempotency-Key was used for another request. Use a new key."
    ),
}
