"""The security events that an answer should cause, and those that were logged."""

from collections.abc import Iterable, Mapping
from typing import Any

from httpx import Response

KINDS = {401: "authentication-failed", 403: "access-refused", 429: "rate-limited"}
HIDDEN = {"no-such-labour", "invite-invalid"}  # 404 for what the caller may not know of
NAMED = {"/webhooks/": "bad-signature", "/pubsub/": "push-refused"}


def security_events(logs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields of the events among captured log lines, without those that are the same or random for each."""
    constant = ("event", "trace_id", "span_id")
    lines = (line for line in logs if line["event"] == "security event")
    return [{name: value for name, value in line.items() if name not in constant} for line in lines]


def expected_events(
    answer: Response, method: str, route: str, operator: str | None = None, *, hidden: bool = False
) -> list[dict[str, Any]]:
    """`operator` is the name of the operator whose token the request had, at the operators' listener. `hidden`: what the path
    names exists, so a 404 that says otherwise is a refusal.
    """
    request = {"method": method, "route": route, "status": answer.status_code}
    if answer.status_code in KINDS:
        kind = next((kind for path, kind in NAMED.items() if route.startswith(path)), KINDS[answer.status_code])
        problem = answer.json()
        why = {"reason": problem["type"].rpartition(":")[2], "detail": problem["detail"], "log_level": "warning"}
        return [{"kind": kind, **request, **why, **({"operator": operator} if operator else {})}]
    if answer.status_code == 404 and (reason := answer.json()["type"].rpartition(":")[2]) in HIDDEN and hidden:
        return [{"kind": KINDS[403], **request, "reason": reason, "log_level": "warning"}]
    if operator and method != "GET":
        ids = dict(_parameters(route, answer.request.url.path))
        return [{"kind": "operator-change", **request, "operator": operator, "ids": ids, "log_level": "warning"}]
    return []


def _parameters(route: str, path: str) -> list[tuple[str, str]]:
    pairs = zip(route.split("/"), path.split("/"), strict=False)
    return [(name.strip("{}"), part) for name, part in pairs if name.startswith("{")]
