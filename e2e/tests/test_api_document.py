"""Every operation of every OpenAPI document says what a client needs, and the page of the documents needs no other host."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import jsonschema_rs
import pytest
from litestar import Litestar
from litestar.serialization import encode_json
from litestar.testing import TestClient

from labour import app as labour
from labour.http.auth import Tokens
from labour.settings import ApiSettings as LabourSettings
from notification import app as notification
from notification.settings import ApiSettings as NotificationSettings
from servicekit.http import api_page
from servicekit.http.api_document import operations

ROOT = Path(__file__).parents[2]
LOCAL = {
    "FERN_MODE": "local",
    "LABOUR_DATABASE_URL": "postgresql+asyncpg://127.0.0.1:1/labour",
    "NOTIFICATION_DATABASE_URL": "postgresql+asyncpg://127.0.0.1:1/notification",
}
PRODUCTION = {
    **LOCAL,
    "FERN_MODE": "",
    "PUBSUB_PROJECT_ID": "fern",
    "JWKS_URL": "https://id.example/keys",
    "TOKEN_ISSUER": "https://id.example/",
    "OPERATOR_READ_TOKENS": f"grace:{'r' * 32}",
    "OPERATOR_WRITE_TOKENS": f"grace:{'w' * 32}",
}
SERVICES = ["labour", "labour-operators", "notification", "notification-operators"]
VERBS = set(
    """
    Add Approve Begin Block Change Complete Correct Count Create Delete Discard End Follow Get Handle List Plan Post Publish
    Record Remove Request Resolve Retry Revoke Set Start Tell Unblock
    """.split()  # noqa: SIM905  (easier to extend)
)
OUTSIDE = re.compile(r"https?://|(?:src|href)=.//")

# Answered before a route is known, or never on purpose.
NOT_OF_A_ROUTE = {"headers-too-large", "internal-error", "method-not-allowed"}


@pytest.fixture
async def apps(monkeypatch: pytest.MonkeyPatch) -> dict[str, Litestar]:
    """Built, and not started: the documents need no database."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    built = {
        "labour": labour.build(LabourSettings.load(LOCAL)),
        "notification": notification.build(NotificationSettings.load(LOCAL)),
    }
    public = {name: apis.public for name, apis in built.items()}
    return public | {f"{name}-operators": apis.operators for name, apis in built.items()}


def walk(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


@pytest.mark.parametrize("service", SERVICES)
async def test_every_operation_says_what_a_client_needs(apps: dict[str, Litestar], service: str) -> None:
    document = apps[service].openapi_schema.to_schema()
    schemes, tags = document["components"]["securitySchemes"], {tag["name"]: tag for tag in document["tags"]}
    seen = set[str]()

    for method, path, operation in walk(document):
        where, summary = f"{method} {path}", operation["summary"]
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation["operationId"]), where
        assert operation["operationId"] not in seen, where
        seen.add(operation["operationId"])
        assert summary.split()[0] in VERBS, f"{where}: {summary!r} does not begin with an imperative of the list"
        assert len(summary) <= 90, where
        assert summary.endswith("."), where
        assert operation["description"] not in ("", summary), where
        assert [tags[name]["description"] for name in operation["tags"]], where
        assert all(name in schemes for one in operation["security"] for name in one), where
        assert operation["security"] or path.startswith("/health/"), where
        if "requestBody" in operation:
            assert operation["requestBody"]["required"] == (operation["operationId"] != "complete_labour"), where
        for media in operation.get("requestBody", {"content": {}})["content"].values():
            assert "example" in media, where
        for status, answer in operation["responses"].items():
            assert status < "300" or "`" in answer["description"], f"{where}: {status} names no problem"
            for media in answer.get("content", {}).values() if status < "300" else ():
                assert media["example"], where
        for parameter in operation.get("parameters", []):
            if parameter["name"] in ("limit", "after", "Idempotency-Key", "If-Match"):
                assert parameter["description"], f"{where}: {parameter['name']}"
    assert seen


RELEASED = Path(__file__).parent / "operation_ids.json"


async def test_an_operation_keeps_its_id_and_its_address(apps: dict[str, Litestar]) -> None:
    """Generated clients call operations by their ids. Remove a line of the file only with a new version of the API."""
    today = {
        service: {
            operation["operationId"]: f"{method.upper()} {path}"
            for method, path, operation in walk(app.openapi_schema.to_schema())
        }
        for service, app in apps.items()
    }

    assert today == json.loads(RELEASED.read_text()), (
        f"add a new operation to {RELEASED.relative_to(ROOT)}; never rename one"
    )


@pytest.mark.parametrize("service", SERVICES)
async def test_the_headers_that_a_route_takes_and_gives_are_documented(apps: dict[str, Litestar], service: str) -> None:
    document = apps[service].openapi_schema.to_schema()
    for handler, _, documented in operations(apps[service]):
        operation = documented.to_schema()
        parameters, answers = handler.parsed_fn_signature.parameters, operation["responses"]
        taken = {one["name"] for one in operation.get("parameters", []) if one["in"] == "header"}
        given = set(answers[str(handler.status_code)].get("headers", {}))
        changes, of_a_labour = "run" in parameters, "labour_id" in parameters

        assert taken == ({"Idempotency-Key"} if changes else set()) | (
            {"If-Match"} if changes and of_a_labour else set()
        )
        assert ("Idempotency-Replayed" in given) == changes
        view = str(handler.parsed_fn_signature.return_type.annotation)
        assert ("ETag" in given) == ("Response" in view and ".LabourView" in view), operation["operationId"]
        assert ("Location" in given) == (operation["operationId"] == "plan_labour")
        assert ("412" in answers) == (changes and of_a_labour)
        for status in {"429", "503"} & set(answers):
            assert "Retry-After" in answers[status]["headers"]
        if "rate-limited" in answers.get("429", {}).get("description", ""):
            assert {"RateLimit-Limit", "RateLimit-Remaining"} <= set(answers["429"]["headers"])
    assert document["components"]["schemas"]["Problem"]


async def test_every_problem_in_the_code_is_documented_and_no_other_one(apps: dict[str, Litestar]) -> None:
    documented = set[str]()
    for app in apps.values():
        for _, _, operation in walk(app.openapi_schema.to_schema()):
            for status, answer in operation["responses"].items():
                documented |= set(re.findall(r"`([a-z-]+)`", answer["description"])) if status >= "400" else set()

    routes = [path for top in ("services/*/*/http", "shared/servicekit/http") for path in ROOT.glob(f"{top}/*.py")]
    code = "\n".join(path.read_text() for path in routes)
    named = set(re.findall(r'(?:Problem|_is|_about_a_field)\(\s*(?:\d+,\s*)?"([a-z-]+)"', code))
    named |= set(re.findall(r'\d+: "([a-z-]+)"', (ROOT / "shared/servicekit/http/problems.py").read_text()))
    rules = "\n".join(path.read_text() for path in ROOT.glob("services/labour/labour/**/*.py"))
    named |= {f"too-many-{what}" for what in re.findall(r'TooMany\(\s*[\w.]+, "([a-z-]+)"', rules)}

    assert named - documented - NOT_OF_A_ROUTE == set()
    assert documented - named == set()


@pytest.mark.parametrize("service", SERVICES)
async def test_a_problem_that_follows_from_a_route_is_documented_there_and_nowhere_else(
    apps: dict[str, Litestar], service: str
) -> None:
    for handler, _, operation in operations(apps[service]):
        parameters, documented = handler.parsed_fn_signature.parameters, operation.to_schema()
        answers = "".join(answer["description"] for answer in documented["responses"].values())
        changes, reads = "run" in parameters, "read" in parameters
        expected = {
            "daily-limit": changes and handler.operation_id not in ("begin_labour", "complete_labour"),
            "request-in-flight": changes,
            "rate-limited": changes or reads,
            "version-changed": changes and "labour_id" in parameters,
            "not-authorized": {"bearer": []} in documented["security"],
        }

        assert {name: f"`{name}`" in answers for name in expected} == expected, handler.operation_id


@pytest.mark.parametrize("service", SERVICES)
async def test_every_example_is_valid(apps: dict[str, Litestar], service: str) -> None:
    document = sent(apps[service])
    for method, path, operation in walk(document):
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for kind, media in part.get("content", {}).items():
                if "example" in media and "json" in kind:
                    schema = {**media["schema"], "components": document["components"]}
                    problems = [str(one) for one in jsonschema_rs.validator_for(schema).iter_errors(media["example"])]
                    assert problems == [], f"{method} {path}"


def sent(app: Litestar) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode_json(app.openapi_schema.to_schema()))
    return document


@pytest.mark.parametrize("service", SERVICES)
async def test_the_document_names_no_other_host(apps: dict[str, Litestar], service: str) -> None:
    assert not OUTSIDE.search(json.dumps(sent(apps[service])))


@pytest.mark.parametrize("service", ["labour", "notification"])
async def test_the_page_and_its_files_come_from_the_service_itself(apps: dict[str, Litestar], service: str) -> None:
    page = _get(apps[service], "/schema")
    files = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)

    assert page.headers["content-security-policy"] == api_page.POLICY
    assert "http" not in api_page.POLICY
    assert not OUTSIDE.search(page.text)
    assert {path.rpartition("/")[2] for path in files} == set(api_page.FILES)
    for path in files:
        sent = _get(apps[service], path)
        assert sent.status_code == 200
        assert "immutable" in sent.headers["cache-control"]
    assert _get(apps[service], f"/schema/{api_page.VERSION}/README.md").status_code == 404


def test_the_files_of_the_page_are_those_of_the_release_that_is_named() -> None:
    readme = (api_page.HERE / "README.md").read_text()
    digests = dict(re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", readme))

    assert f"`swagger-ui-dist` {api_page.VERSION}" in readme
    assert set(digests) == set(api_page.FILES) - {"start.js"}
    for name, digest in digests.items():
        assert sha256((api_page.HERE / name).read_bytes()).hexdigest() == digest


@pytest.mark.system
def test_the_files_of_the_page_are_in_the_distribution(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "shared", check=True, capture_output=True, timeout=240)

    [wheel] = tmp_path.glob("*.whl")
    assert {f"servicekit/http/api_page/{name}" for name in api_page.FILES} <= set(ZipFile(wheel).namelist())


async def test_the_page_has_a_token_in_local_mode_only(apps: dict[str, Litestar]) -> None:
    assert re.search(r'data-token="[\w.-]{50,}"', _get(apps["labour"], "/schema").text)
    assert 'data-token=""' in _get(apps["notification"], "/schema").text

    settings = LabourSettings.load(PRODUCTION)
    assert 'data-token=""' in _get(labour.build(settings).public, "/schema").text
    with pytest.raises(RuntimeError, match="issues no tokens"):
        Tokens(settings).issue("ada")


def _get(app: Litestar, path: str) -> Any:
    """Without its lifespan, which needs a database."""
    return TestClient(app, base_url="http://127.0.0.1").get(path)
