"""Maps the errors of this service to HTTP problems. No other module does."""

from collections.abc import Callable, Mapping
from typing import Any

from notification.domain.errors import NewerTaken, NoSuchNotification, NotInDoubt
from servicekit.http.problems import Problem

PROBLEMS: Mapping[type[Exception], Callable[[Any], Problem]] = {
    NoSuchNotification: lambda error: Problem(404, "no-such-notification", str(error)),
    NewerTaken: lambda error: Problem(409, "superseded", str(error)),
    NotInDoubt: lambda error: Problem(409, "not-in-doubt", str(error)),
}
