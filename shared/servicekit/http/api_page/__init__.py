"""The page of an API at /schema: Swagger UI from files beside this one, so that it needs no other host.

README.md has the version of the files and their digests. `token` makes an access token that the page fills in; for local mode
only.
"""

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from litestar import Request, Response, Router, get
from litestar.exceptions import NotFoundException
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.params import FromPath

HERE = Path(__file__).parent
VERSION = "5.35.0"  # part of the addresses, so that a browser may keep the files for good
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "start.js": "text/javascript"}
KEEP = "public, max-age=31536000, immutable"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/schema/{version}/swagger-ui.css">
</head>
<body>
<div id="page" data-token="{token}"></div>
<script src="/schema/{version}/swagger-ui-bundle.js"></script>
<script src="/schema/{version}/start.js"></script>
</body>
</html>
"""


class ApiPage(OpenAPIRenderPlugin):
    def __init__(self, token: Callable[[], str] | None = None) -> None:
        super().__init__(path="/")
        self._token = token

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        token = self._token() if self._token else ""
        title = openapi_schema["info"]["title"]
        return _PAGE.format(title=escape(title), version=VERSION, token=escape(token)).encode()

    def receive_router(self, router: Router) -> None:
        router.register(send_file)


@get(f"/{VERSION}/{{name:str}}", sync_to_thread=False)
def send_file(name: FromPath[str]) -> Response[bytes]:
    if name not in FILES:
        raise NotFoundException("The page of the API has no such file.")
    return Response((HERE / name).read_bytes(), media_type=FILES[name], headers={"Cache-Control": KEEP})
