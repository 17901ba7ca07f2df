"""`fern --context`: operators' commands on a system elsewhere. Here it is one on this machine, reached from an empty home."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner, Result

from e2e.support.installation import Installation
from e2e.support.ports import free_port_base
from fern.cli import main
from fern.contexts import find
from fern.errors import ContextInvalid, FernError
from fern.settings import OPERATOR_READ_TOKEN, OPERATOR_WRITE_TOKEN, PROJECT_ID

TWO_URLS = 'labour = "https://labour.example.org"\nnotification = "https://notification.example.org"\n'
READ = 'read_token = { env = "STAGING_READ" }\n'


class Elsewhere(Installation):
    """Nothing runs here: what a command shows comes from the system of the context `staging`."""

    def __init__(self, home: Path, target: Installation) -> None:
        super().__init__(str(home / "home"), free_port_base())
        url, token = target.settings.url, home / "write-token"
        token.touch(0o600)
        token.write_text(f"{OPERATOR_WRITE_TOKEN}\n")
        (home / "contexts.toml").write_text(f"""
[staging]
labour = "{url("labour-operators")}"
notification = "{url("notification-operators")}/"
pubsub_project = "{PROJECT_ID}"
pubsub_emulator = "127.0.0.1:{target.settings.port("pubsub")}"
{READ}write_token = {{ file = "{token}" }}

[reader]
labour = "{url("labour-operators")}"
notification = "{url("notification-operators")}"
{READ}""")
        self.token = token
        self.environment |= {"FERN_CONTEXTS": str(home / "contexts.toml"), "STAGING_READ": OPERATOR_READ_TOKEN}

    def staging(self, *arguments: str) -> CompletedProcess[str]:
        done = self.fern("--context", "staging", *arguments)
        assert OPERATOR_READ_TOKEN not in done.stdout + done.stderr
        assert OPERATOR_WRITE_TOKEN not in done.stdout + done.stderr
        return done


@pytest.fixture
def elsewhere(installation: Installation, tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path, installation)


def test_operators_commands_work_on_the_system_of_the_context(installation: Installation, elsewhere: Elsewhere) -> None:
    labour_id = installation.json("demo", "--timeout", "120")["labour_id"]

    trace = elsewhere.staging("trace", labour_id)

    assert (trace.returncode, trace.stderr) == (0, "context: staging\n")
    assert "labour.completed" in trace.stdout
    for command, shown in (
        ("outbox ls --parked", "nothing is parked"),
        ("dlq ls", "no dead letters"),
        ("sms ls", "no message is IN_DOUBT"),
        (f"replay --labour {labour_id} --yes", "are published again; 0 had their effect now, 0 not yet"),
        ("retention --service labour", "labour: 0 partitions made"),
        ("statistics verify", "every balance is the sum of its postings"),
        ("topology apply", "0 created, 0 updated"),
    ):
        done = elsewhere.staging(*command.split())
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout


def test_a_context_without_a_write_token_changes_nothing(elsewhere: Elsewhere) -> None:
    reading = elsewhere.fern("--context", "reader", "outbox", "ls")
    writing = elsewhere.fern("--context", "reader", "retention")

    assert reading.returncode == 0, reading.stderr
    assert writing.returncode == 37
    assert "the context reader has no write_token, so nothing can be changed with it." in writing.stderr


def test_a_token_file_that_others_can_read_is_refused(elsewhere: Elsewhere) -> None:
    elsewhere.token.chmod(0o644)

    refused, shown = elsewhere.staging("retention"), elsewhere.staging("context", "show")

    assert refused.returncode == 37
    assert "readable by others (mode 0644)" in refused.stderr
    assert "readable by others (mode 0644)" in shown.stdout


def test_the_contexts_are_listed_and_shown_without_their_secrets(elsewhere: Elsewhere) -> None:
    listed, shown = elsewhere.staging("context", "ls", "--json"), elsewhere.staging("context", "show", "--json")

    assert json.loads(listed.stdout)["items"] == ["local", "staging", "reader"]
    assert json.loads(listed.stdout)["chosen"] == "staging"
    facts = json.loads(shown.stdout)
    assert (facts["read token"], facts["write token"]) == (
        "$STAGING_READ: can be read",
        f"{elsewhere.token}: can be read",
    )


def invoke(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"FERN_CONTEXT": "local", **environment})


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "contexts.toml"
    monkeypatch.setenv("FERN_CONTEXTS", str(file))
    monkeypatch.setenv("FERN_CONTEXT", "local")  # and restored afterwards
    file.write_text(f"[far]\n{TWO_URLS}{READ}")
    return file


def test_a_listener_on_cloud_run_gets_the_token_of_googles_identity_beside_that_of_the_operator(
    contexts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts.write_text(f'[far]\n{TWO_URLS}{READ}identity_token = {{ env = "GOOGLE" }}\n')
    monkeypatch.setenv("STAGING_READ", "ours")
    monkeypatch.setenv("GOOGLE", "theirs")

    shown = invoke("context", "show", "far")

    assert find("far").headers(writing=False) == {
        "Authorization": "Bearer ours",
        "X-Serverless-Authorization": "Bearer theirs",
    }
    assert "identity token    $GOOGLE: can be read" in shown.output
    assert "theirs" not in shown.output


@pytest.mark.parametrize(
    "command",
    [
        *(
            "up",
            "down",
            "reset",
            "status",
            "logs",
            "doctor",
            "kill labour-relay",
            "scale labour-relay=2",
            "token ada",
            "demo",
        ),
        *("fault ls", "console serve --port 1", "chaos", "museum", "consent required", "drain notification"),
        *("sms reply +12025550111 YES", "topology set notification push", "pubsub serve --port 1 --data-dir x"),
    ],
)
def test_a_command_for_this_machine_refuses_another_context(contexts: Path, command: str) -> None:
    refused = invoke("--context", "far", *command.split())

    assert refused.exit_code == 36, refused.output
    assert f"`fern {command.split()[0]}" in refused.stderr
    assert "works on the system of this machine only, and the context is far." in refused.stderr
    assert "--context local" in refused.stderr


def test_the_audit_of_another_context_never_reads_the_local_databases(
    contexts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LABOUR_DATABASE_URL", raising=False)

    refused = invoke("--context", "far", "audit", NOTIFICATION_DATABASE_URL="postgresql+asyncpg://u@127.0.0.1/n")

    assert refused.exit_code == 37
    assert "the audit of the context far reads both databases: set LABOUR_DATABASE_URL." in refused.stderr


def test_the_audit_refuses_a_url_that_asks_for_tls_in_another_way_than_the_services(contexts: Path) -> None:
    url = "postgresql+asyncpg://u@127.0.0.1/n?ssl=verify-full"

    refused = invoke("--context", "far", "audit", LABOUR_DATABASE_URL=url, NOTIFICATION_DATABASE_URL=url)

    assert refused.exit_code == 1
    assert "the URL of a database cannot be used: it has the parameter ssl: write sslmode=verify-full" in refused.stderr


def test_an_error_suggests_only_commands_that_work_in_the_context(
    contexts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERN_CONTEXT", "far")

    suggested = [FernError("", command=command).command for command in ("fern dlq ls", "fern status", "make up")]

    assert str(suggested[0]).endswith("fern --context far dlq ls")
    assert suggested[1:] == [None, "make up"]


def test_an_unknown_context_is_refused_with_those_that_there_are(contexts: Path) -> None:
    refused = invoke("--context", "near", "outbox", "ls")

    assert refused.exit_code == 37
    assert "there is no context near" in refused.stderr
    assert "there are: local, far." in refused.stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("far = 3", "is not a table"),
        (f"[far]\n{TWO_URLS}", "has neither read_token nor write_token"),
        (f'[far]\n{TWO_URLS}write_token = "hunter2"', "must not contain secrets"),
        (f'[far]\n{TWO_URLS}{READ}password = "hunter2"', "has unknown keys: password"),
        (f'[far]\nlabour = "https://l.example.org"\n{READ}', "has no URL of the operators' listener of notification"),
        (f"[far]\n{TWO_URLS.replace('https://labour', 'http://labour')}{READ}", "a URL for labour that has no TLS"),
        (
            f"[far]\n{TWO_URLS.replace('https://labour', 'https://me:hunter2@labour')}{READ}",
            "a user name or a password",
        ),
        (
            f'[far]\n{TWO_URLS}{READ}pubsub_emulator = "bus.example.org:8085"',
            "a pubsub_emulator that is not on loopback",
        ),
        ("[far", "cannot be read"),
        ("[local]", "declares local"),
    ],
)
def test_a_context_that_is_unsafe_or_incomplete_is_refused_and_no_secret_is_printed(
    contexts: Path, content: str, why: str
) -> None:
    contexts.write_text(content)

    with pytest.raises(ContextInvalid) as refused:
        find("far")

    assert why in refused.value.message
    assert "hunter2" not in refused.value.message


def test_without_tls_only_loopback_is_accepted(contexts: Path) -> None:
    contexts.write_text(f'[near]\nlabour = "http://127.0.0.1:8407"\nnotification = "http://[::1]:8408"\n{READ}')

    assert find("near").url("notification") == "http://[::1]:8408"
