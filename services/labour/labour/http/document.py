"""What the OpenAPI documents of the Labour service say beside what its routes declare."""

from litestar.openapi.spec import OpenAPIType, Parameter, Schema, SecurityScheme

from labour.http.examples import EXAMPLES, EXAMPLES_FOR_OPERATORS
from servicekit.http.api_document import BEARER, STRING, Document, Trait
from servicekit.http.operator_document import operator_document

PAGE_USER = "ada"  # whose token the page of the API has in local mode

DESCRIPTION = """Plan a labour, choose who is notified, begin it and complete it.

A request that the phase of a labour does not allow is refused with 409. These limits refuse a request as well, each with a
sentence that says what to do:

- `text-not-allowed` (400): a name, an announcement or a status has a link, an invisible character, or one that changes the
  direction of writing.
- `phone-not-supported` (400): a number that is not a mobile phone's in one of the countries that this deployment sends to.
- `too-many-people`, `-contractions`, `-invites`, `-valid-invites`, `-updates`, `-announcements` (409): a labour has as many as
  it can have. People who were removed count.
- `too-soon` (429): the wait after the first announcement is 10 s, and each further one doubles it, up to 10 minutes.
- `daily-limit` (429): the account has planned, added or announced as much as it can in a day (UTC), or used too many idempotency
  keys; `limit_of` says which. A birth and the beginning of a labour are never refused for it.
- `rate-limited` (429): too many changes, or too many reads, within a minute. `too-many-streams` (429): too many live streams.

Lists come page by page: `limit` items, and `next` as the `after` of the next page.

An answer may be lost after its request had its effect. Send every change with an `Idempotency-Key`, and send it again with the
same key until there is an answer: after a lost connection at once, after 429 and 503 when `Retry-After` is over.
"""

IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key",
    param_in="header",
    description="1 to 255 visible characters, such as a new UUID for each change. A request that is sent again with the same key "
    "has its effect once and gets the same answer, for 24 hours.",
    schema=Schema(type=OpenAPIType.STRING, min_length=1, max_length=255),
)
IF_MATCH = Parameter(
    name="If-Match",
    param_in="header",
    description="The `ETag` of the labour as the caller has read it. If the labour has changed since, the answer is 412 and "
    "nothing is changed. `*`, or no header, accepts any version.",
    schema=STRING,
    example="*",
)

TRAITS = {
    ("run",): Trait(
        takes=[IDEMPOTENCY_KEY],
        gives=["Idempotency-Replayed"],
        refuses={
            400: "bad-idempotency-key",
            408: "request-timeout",
            409: "request-in-flight too-busy",
            413: "too-large",
            422: "idempotency-key-reused",
            429: "rate-limited daily-limit",
        },
    ),
    ("run", "labour_id"): Trait(
        takes=[IF_MATCH],
        refuses={400: "bad-if-match", 403: "not-yours", 404: "no-such-labour", 412: "version-changed"},
    ),
    ("read",): Trait(refuses={429: "rate-limited"}),
    ("read", "labour_id"): Trait(refuses={404: "no-such-labour"}),
}

PUBLIC = Document(
    title="FernLabour: Labour",
    version="1.1",
    description=DESCRIPTION,
    tags={
        "labours": "A labour: its course, its updates, and who was told.",
        "contractions": "Contractions, and the statistics and advice that follow from them.",
        "people": "Invites and subscribers, for the mother.",
        "subscriptions": "The caller's own subscriptions.",
        "health": "For load balancers and supervisors.",
    },
    schemes={
        BEARER: SecurityScheme(
            type="http",
            scheme="bearer",
            bearer_format="JWT",
            description="An access token of the identity provider. Locally, `fern token NAME` issues one for any name.",
        )
    },
    examples=EXAMPLES,
    traits=TRAITS,
)
FOR_OPERATORS = operator_document("FernLabour: Labour, for operators", EXAMPLES_FOR_OPERATORS)
