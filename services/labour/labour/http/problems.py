"""The one table that says which error is which problem."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from labour.application.command_runner import TooBusy
from labour.domain import errors
from labour.domain.phone import NotAPhoneNumber
from labour.storage import NoSuchLabour, VersionChanged
from servicekit.idempotency import KeyInFlight, KeyReused
from servicekit.problems import Problem


def _is(status: int, name: str) -> Callable[[Exception], Problem]:
    return lambda error: Problem(status, name, str(error))


PROBLEMS: Mapping[type[Exception], Callable[[Any], Problem]] = {
    NoSuchLabour: _is(404, "no-such-labour"),
    NotAPhoneNumber: lambda error: Problem(
        400, "not-a-phone-number", str(error), fields=[{"field": "phone", "problem": str(error)}]
    ),
    TooBusy: lambda _: Problem(
        409, "too-busy", "Too many people are changing this labour at once; try again.", {"Retry-After": "1"}
    ),
    VersionChanged: lambda _: Problem(
        412, "version-changed", "The labour has changed since you looked; get it again and decide anew."
    ),
    KeyInFlight: lambda _: Problem(
        409,
        "request-in-flight",
        "A request with this Idempotency-Key is being handled; try again.",
        {"Retry-After": "1"},
    ),
    KeyReused: lambda _: Problem(
        422, "idempotency-key-reused", "This Idempotency-Key was used for another request; take a new one."
    ),
    errors.TooSoon: lambda error: Problem(
        429, "too-soon", str(error), {"Retry-After": str(math.ceil(error.wait.total_seconds()))}
    ),
    errors.NotYours: _is(403, "not-yours"),
    errors.UnfinishedLabour: lambda error: Problem(
        409, "unfinished-labour", str(error), labour_id=str(error.labour_id)
    ),
    errors.LabourAlreadyBegun: _is(409, "labour-already-begun"),
    errors.LabourAlreadyCompleted: _is(409, "labour-already-completed"),
    errors.LabourNotBegun: _is(409, "labour-not-begun"),
    errors.ContractionRunning: _is(409, "contraction-running"),
    errors.ImpossibleTimes: _is(422, "impossible-times"),
    errors.NoSuchContraction: _is(404, "no-such-contraction"),
    errors.NoSuchUpdate: _is(404, "no-such-update"),
    errors.AnnouncementSent: _is(409, "announcement-sent"),
    errors.AlreadySubscribed: _is(409, "already-subscribed"),
    errors.NotPossibleNow: _is(409, "not-possible-now"),
    errors.RosterFull: _is(409, "roster-full"),
    errors.InviteInvalid: _is(404, "invite-invalid"),
    errors.NotSubscribed: _is(404, "not-subscribed"),
}
