"""Twilio's errors as the sandbox answers them (code, HTTP status, sentence), and its own.

TwilioError      answered to a request on Twilio's routes
SandboxProblem   answered as problem+json on the sandbox's own routes
PortInUse        the process cannot start: exit code 10
"""

import subprocess
from collections import defaultdict
from typing import Any

from litestar import Request, Response
from litestar.plugins.problem_details import ProblemDetailsException

# The answers to a request that is refused. A sentence may name the numbers of the request.
REFUSALS: dict[int, tuple[int, str]] = {
    20001: (400, "Invalid parameter: Parameter '{parameter}' is not valid"),
    20003: (401, "Authenticate"),
    20404: (404, "The requested resource {path} was not found"),
    20429: (429, "Too Many Requests"),
    20500: (500, "An internal server error has occurred"),
    21211: (400, "Invalid 'To' Phone Number: {to}"),
    21212: (400, "Invalid 'From' Phone Number: {from_}"),
    21408: (400, "Permission to send an SMS has not been enabled for the region indicated by the 'To' number: {to}"),
    21602: (400, "Message body is required."),
    21603: (400, "A 'From' phone number is required."),
    21604: (400, "A 'To' phone number is required."),
    21606: (
        400,
        "The 'From' phone number provided ({from_}) is not a valid message-capable Twilio phone number for this "
        "destination/account",
    ),
    21609: (400, "The 'StatusCallback' URL {url} is not a valid URL."),
    21610: (400, "Attempt to send to unsubscribed recipient"),
    21611: (429, "This 'From' number has exceeded the maximum number of queued messages"),
    21612: (
        400,
        "The 'To' phone number: {to}, is not currently reachable using the 'From' phone number: {from_} via SMS",
    ),
    21614: (400, "'To' number: {to}, is not a valid mobile number"),
    21617: (400, "The concatenated message body exceeds the 1600 character limit"),
    21635: (400, "'To' number cannot be a landline: {to}"),
}

# Why an accepted message was not delivered: reported later, by callback and in the resource.
MEANINGS: dict[int, str] = {
    30001: "Queue overflow",
    30003: "Unreachable destination handset",
    30005: "Unknown destination handset",
    30006: "Landline or unreachable carrier",
    30007: "Message filtered",
    30008: "Unknown error",
}


class TwilioError(Exception):
    """The request is answered with one of Twilio's errors."""

    def __init__(self, code: int, **words: str) -> None:
        self.code = code
        self.status, sentence = REFUSALS[code]
        self.message = sentence.format_map(defaultdict(str, words))
        super().__init__(self.message)


def answer_error(_: Request[Any, Any, Any], error: TwilioError) -> Response[dict[str, object]]:
    more_info = f"https://www.twilio.com/docs/errors/{error.code}"
    content = {"code": error.code, "message": error.message, "more_info": more_info, "status": error.status}
    return Response(content, status_code=error.status)


class SandboxProblem(ProblemDetailsException):
    """An error of the sandbox's own routes. `name` is stable and ends the problem's type; `detail` is a sentence for a person."""

    def __init__(self, status: int, name: str, detail: str) -> None:
        title = name.replace("-", " ").capitalize()
        super().__init__(status_code=status, type_=f"urn:fernlabour:problem:{name}", title=title, detail=detail)


class PortInUse(Exception):
    def __init__(self, host: str, port: int, reason: str) -> None:
        holder = _listener_on(port)
        super().__init__(f"cannot listen on {host}:{port}: " + (f"{holder} has the port." if holder else f"{reason}."))


def _listener_on(port: int) -> str:
    """The program that listens on the port; empty if `lsof` is missing or may not see it."""
    command = ["lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{lines[1][1:]} (pid {lines[0][1:]})" if len(lines) > 1 else ""  # p1234, cpython
