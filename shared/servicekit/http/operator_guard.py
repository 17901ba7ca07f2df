"""Checks the token of every request to the operators' listener, before anything else is done with the request: the route is not
looked up, the body not parsed, and no slot taken. GET needs the scope `read`; every other method needs `write`, which includes
`read`. So a new route cannot forget its scope.

The tokens are settings (`servicekit.http.operator_access`), which this module leaves to a module without the web framework: the
settings of a service are read by processes that serve no HTTP.
"""

import hmac

from litestar.types import ASGIApp, Receive, Scope, Send

from servicekit.http.operator_access import READ_TOKENS, WRITE_TOKENS, OperatorToken, digest_of
from servicekit.http.problems import Problem, send_problem

READING = frozenset({"GET", "HEAD"})
_REALM = 'Bearer realm="fernlabour operators"'


def require_token(app: ASGIApp, tokens: tuple[OperatorToken, ...]) -> ASGIApp:
    """The layer that refuses requests without the right token. Stores the operator's name in the state of the request."""

    async def authenticated(scope: Scope, receive: Receive, send: Send) -> None:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        token = _find(tokens, header)
        if token is None:
            await send_problem(send, _unauthorized(header))
            return
        scope["state"]["operator"] = token.operator
        if token.may_write or scope.get("method") in READING:
            await app(scope, receive, send)
        else:
            await send_problem(send, _insufficient_scope())

    return authenticated


def _find(tokens: tuple[OperatorToken, ...], header: bytes) -> OperatorToken | None:
    """The token of a request. All tokens are compared, in constant time: the time reveals neither which one fits nor how much."""
    scheme, _, secret = header.strip().partition(b" ")
    digest, found = digest_of(secret.strip()), None
    for token in tokens:
        if hmac.compare_digest(digest, token.digest):
            found = token
    return found if scheme.lower() == b"bearer" else None


def _unauthorized(header: bytes) -> Problem:
    what = (
        "The token is not that of an operator, or no longer. Get the current one"
        if header
        else "Operators' routes need a token. Send one as `Authorization: Bearer <secret>`"
    )
    detail = f"{what}: a secret of {READ_TOKENS} or {WRITE_TOKENS}."
    return Problem(401, "not-authorized", detail, {"WWW-Authenticate": _REALM})


def _insufficient_scope() -> Problem:
    header = f'{_REALM}, error="insufficient_scope", scope="write"'
    detail = f"This token may only read. Use one of {WRITE_TOKENS} to change something."
    return Problem(403, "insufficient-scope", detail, {"WWW-Authenticate": header})
