"""The OpenAPI document of an application: what Litestar reads from a route, and what it cannot see there.

A route has `operation_id` and `summary`, and its docstring is the description. Beside them it may declare

refuses   problems that this route answers: status to names, separated by spaces
exempt    problems of its traits that this route never answers
gives     names of the headers of its success answer (see `HEADERS`)
example   the body of its success answer, if its type has no example
form      an example of the form that it takes, if it takes one

The rest follows from the route itself, so that it cannot be forgotten: a route with a body may answer 408 and 413, one with
`security` 401, and a `Trait` says what each parameter of its function adds.

Not documented, because no route answers them: 404 and 405 for other paths and methods, 500, and in local mode 403 for pages of
other origins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

import msgspec
from litestar import Litestar, Router
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import (
    Components,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
    SecurityScheme,
    Tag,
)
from litestar.routes import HTTPRoute

from servicekit.http.api_page import POLICY

STRING, INTEGER = Schema(type=OpenAPIType.STRING), Schema(type=OpenAPIType.INTEGER)

BEARER = "bearer"

HEADERS = {
    "ETag": ("The version of the labour, for `If-Match`.", STRING, '"v7"'),
    "Idempotency-Replayed": (
        "`true` if an earlier request with this `Idempotency-Key` had its effect: this is its answer, and nothing changed.",
        STRING,
        "true",
    ),
    "Location": ("The path of the labour.", STRING, "/api/v1/labours/01995a3c-52f4-7c1d-9a35-4f3d8f2f9a01"),
    "RateLimit-Limit": ("Requests that a caller may send in a minute; with `rate-limited` only.", INTEGER, 120),
    "RateLimit-Remaining": ("Requests that are left in this minute; with `rate-limited` only.", INTEGER, 0),
    "Retry-After": ("Seconds to wait before the next attempt.", INTEGER, 1),
    "WWW-Authenticate": ("The scheme of the token that is missing or not valid.", STRING, 'Bearer realm="fernlabour"'),
}
_WITH = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}
_WITH_PROBLEM = {
    "rate-limited": ("RateLimit-Limit", "RateLimit-Remaining"),
    "request-in-flight": ("Retry-After",),
}

PROBLEM = Schema(
    title="Problem",
    description="RFC 9457. `type` ends with the name of the problem, which is stable; `detail` says what to do.",
    type=OpenAPIType.OBJECT,
    properties={
        "type": STRING,
        "title": STRING,
        "status": INTEGER,
        "detail": STRING,
        "fields": Schema(
            description="With `invalid-request`: the fields and what is wrong with each.",
            type=OpenAPIType.ARRAY,
            items=Schema(type=OpenAPIType.OBJECT, properties={"field": STRING, "problem": STRING}),
        ),
    },
    required=["type", "title", "status", "detail"],
    examples=[
        {
            "type": "urn:fernlabour:problem:no-such-labour",
            "title": "No such labour",
            "status": 404,
            "detail": "There is no such labour, or it is not yours.",
        }
    ],
)


@dataclass(frozen=True, slots=True)
class Trait:
    """What a parameter of a route's function, or the method of a route, adds to its operation."""

    refuses: Mapping[int, str] = field(default_factory=dict)
    takes: Sequence[Parameter] = ()
    gives: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """`tags` and `schemes` are described here and named by routes. `examples` has an object for each type in a body or an answer.

    A trait holds for the routes that have all the parameters, and the method, in its key.
    """

    title: str
    description: str
    tags: Mapping[str, str]
    schemes: Mapping[str, SecurityScheme]
    examples: Sequence[object]
    traits: Mapping[tuple[str, ...], Trait] = field(default_factory=dict)
    version: str = "1"

    def config(self, *plugins: OpenAPIRenderPlugin) -> OpenAPIConfig:
        return OpenAPIConfig(
            title=self.title,
            version=self.version,
            description=self.description,
            tags=[Tag(name=name, description=text) for name, text in self.tags.items()],
            components=Components(security_schemes=dict(self.schemes)),
            use_handler_docstrings=True,
            render_plugins=list(plugins),
            openapi_router=Router(
                "/schema",
                route_handlers=[],
                include_in_schema=False,
                response_headers={"Content-Security-Policy": POLICY},
            ),
        )

    def complete(self, app: Litestar) -> None:
        """Add what Litestar cannot see to every operation of the application."""
        examples = {type(one): one for one in self.examples}
        schemas = cast("dict[str, Schema | Reference]", app.openapi_schema.components.schemas)
        schemas["Problem"] = PROBLEM
        app.openapi_schema.paths = dict(sorted((app.openapi_schema.paths or {}).items()))  # the order on the page
        for handler, method, operation in operations(app):
            names = {*handler.parsed_fn_signature.parameters, method}
            traits = [trait for key, trait in self.traits.items() if names.issuperset(key)]
            _add_parameters(operation, handler, traits)
            _add_answers(operation, handler, traits)
            _add_examples(operation, handler, examples)


def operations(app: Litestar) -> Iterator[tuple[HTTPRouteHandler, str, Operation]]:
    for route in app.routes:
        for method, (handler, _) in route.route_handler_map.items() if isinstance(route, HTTPRoute) else ():
            if method != "OPTIONS" and handler.resolve_include_in_schema():
                item = (app.openapi_schema.paths or {})[route.path_format]
                yield handler, method, getattr(item, method.lower())


def _add_parameters(operation: Operation, handler: HTTPRouteHandler, traits: Sequence[Trait]) -> None:
    taken = [parameter for trait in traits for parameter in trait.takes]
    operation.parameters = [*(operation.parameters or ()), *taken] or None
    operation.security = operation.security or []
    if form := handler.opt.get("form"):
        fields = Schema(type=OpenAPIType.OBJECT, properties=dict.fromkeys(form, STRING))
        media = OpenAPIMediaType(schema=fields, example=form)
        operation.request_body = RequestBody(content={"application/x-www-form-urlencoded": media}, required=True)


def _add_answers(operation: Operation, handler: HTTPRouteHandler, traits: Sequence[Trait]) -> None:
    success = cast("dict[str, OpenAPIResponse]", operation.responses)[str(handler.status_code)]
    if handler.status_code == 204:
        success.content = None
    given = [*handler.opt.get("gives", ()), *(name for trait in traits for name in trait.gives)]
    success.headers = {**(success.headers or {}), **_headers(given)} or None
    own, exempt = handler.opt.get("refuses", {}), handler.opt.get("exempt", ())
    refusals = [own, *(trait.refuses for trait in traits), _general_refusals(operation)]
    answers: dict[str, OpenAPIResponse | Reference] = {str(handler.status_code): success}
    for status in sorted({status for one in refusals for status in one}):
        names = list(
            dict.fromkeys(name for one in refusals for name in one.get(status, "").split() if name not in exempt)
        )
        answers[str(status)] = _refusal(status, names)
    operation.responses = answers


def _general_refusals(operation: Operation) -> dict[int, str]:
    found = dict[int, str]()
    if operation.parameters or operation.request_body:
        found[400] = "invalid-request"
    if operation.request_body:
        found |= {408: "request-timeout", 413: "too-large"}
    if any(BEARER in one for one in operation.security or ()):
        found[401] = "not-authorized"
    if not (operation.tags and "health" in operation.tags):
        found[503] = "busy unavailable"
    return found


def _refusal(status: int, names: Sequence[str]) -> OpenAPIResponse:
    headers = [*_WITH.get(status, ()), *(header for name in names for header in _WITH_PROBLEM.get(name, ()))]
    return OpenAPIResponse(
        description="A problem: " + ", ".join(f"`{name}`" for name in names) + ".",
        headers=_headers(headers) or None,
        content={"application/problem+json": OpenAPIMediaType(schema=Reference("#/components/schemas/Problem"))},
    )


def _headers(names: Sequence[str]) -> dict[str, OpenAPIHeader | Reference]:
    described = ((name, *HEADERS[name]) for name in names)
    return {
        name: OpenAPIHeader(description=text, schema=schema, example=value) for name, text, schema, value in described
    }


def _add_examples(operation: Operation, handler: HTTPRouteHandler, examples: Mapping[Any, object]) -> None:
    success = cast("dict[str, OpenAPIResponse]", operation.responses)[str(handler.status_code)]
    for media in (success.content or {}).values():
        returned = handler.parsed_fn_signature.return_type.annotation
        media.example = _encoded(handler.opt.get("example") or _example(returned, examples))
    if isinstance(operation.request_body, RequestBody) and handler.parsed_data_field:
        operation.request_body.required = handler.parsed_data_field.is_required
        for media in operation.request_body.content.values():
            media.example = _encoded(_example(handler.parsed_data_field.annotation, examples))


def _encoded(example: object) -> msgspec.Raw:
    """Litestar would remove the fields that are null."""
    return msgspec.Raw(msgspec.json.encode(example))


def _example(kind: Any, examples: Mapping[Any, object]) -> Any:
    """Raises `KeyError` for a type without an example, so that the application does not start without one."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType) or (origin and not hasattr(origin, "__struct_fields__")):
        return _example(inner[0], examples)  # Response[View], or the first of several views
    if origin:
        last_page = {"next": None} if "next" in origin.__struct_fields__ else {}
        return origin(items=[_example(inner[0], examples)], **last_page)
    return examples[kind]
