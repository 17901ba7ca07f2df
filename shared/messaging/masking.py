"""Masks personal data in text that is stored, logged or published outside an event's payload.

PostgreSQL and its driver quote values in their errors: `DETAIL: Failing row contains (…)` has all columns of a row, and an error
about a wrong value has the value. `hide_values` removes both as soon as the error leaves the connection (`messaging.database`),
so that no code that logs or publishes an error has to know about it.
"""

import re

import asyncpg

_PHONE = re.compile(r"(?:\+|%2B)[1-9](?:[ ()\-.]?\d){6,14}", re.IGNORECASE)
_WRONG_VALUE = "22"  # the class of SQLSTATEs whose messages quote the value
_QUOTED = re.compile(r"""["'].*""", re.DOTALL)


def mask(text: str) -> str:
    if "+" in text or "%2" in text:  # a phone number has one of them, and most texts have neither
        return _PHONE.sub("[phone]", text)
    return text


def hide_values(error: BaseException) -> None:
    """Remove from the driver's errors in the chain of `error`, and from errors that repeat their text, all that quotes values."""
    chain, unseen = list[BaseException](), [error]
    while unseen:
        one = unseen.pop()
        if one not in chain:
            chain.append(one)
            links = one.__cause__, one.__context__, getattr(one, "orig", None)  # SQLAlchemy's `orig`
            unseen += [link for link in links if isinstance(link, BaseException)]
    for one in chain:
        if isinstance(one, asyncpg.PostgresError):
            before = str(one)
            _hide(one)
            for other in chain:
                other.args = tuple(arg.replace(before, str(one)) if isinstance(arg, str) else arg for arg in other.args)


def _hide(error: asyncpg.PostgresError) -> None:
    error.detail = error.context = error.internal_query = None
    if (error.sqlstate or "").startswith(_WRONG_VALUE):
        error.args = (_QUOTED.sub("…", str(error.args[0])),)
        error.message = error.args[0]
        error.__cause__ = error.__context__ = None  # of the driver's encoder, which quotes the value too
