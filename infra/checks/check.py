"""`make check-deploy`: checks infra/gcp and infra/kubernetes as far as possible without a cloud and without a cluster.

Runs in an environment of its own with the tools of requirements.lock. Every check prints one line; the exit code is 1 if one
failed. A check whose program is not installed is skipped, and its line says so. Nothing is applied: docs/deploy-gcp.md and
docs/deploy-kubernetes.md name what was never tried.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import kubernetes_validate
import promql_parser
import terraform
import yaml

ROOT = Path(__file__).resolve().parents[2]
GCP, KUBERNETES = ROOT / "infra" / "gcp", ROOT / "infra" / "kubernetes"
OBSERVABILITY = ROOT / "infra" / "observability"
RULES = OBSERVABILITY / "rules.yml"
OVERLAYS = ("small", "production")
VERSIONS = ("1.34", "1.37")  # the oldest and the newest Kubernetes that the manifests are checked against
# Kinds that Kubernetes itself does not have, so that there is no schema for them here.
OTHERS = {"ScaledObject", "TriggerAuthentication", "PodMonitoring", "Rules"}


def arguments_of_terraform() -> Iterator[str]:
    yield from terraform.problems(GCP)


def format_of_terraform() -> Iterator[str]:
    done = _run("terraform", "fmt", "-check", "-diff", str(GCP))
    if done.returncode:
        yield done.stdout


def policies_of_terraform() -> Iterator[str]:
    yield from _checkov(GCP, "terraform")


def manifests() -> Iterator[str]:
    for overlay in OVERLAYS:
        for document in yaml.safe_load_all(_built(overlay)):
            name = f"{overlay}: {document['kind']}/{document['metadata']['name']}"
            if document["kind"] in OTHERS:
                continue
            for version in VERSIONS:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    yield f"{name}: {error.message} (Kubernetes {version})"


def policies_of_kubernetes() -> Iterator[str]:
    for overlay in OVERLAYS:
        folder = Path(sys.prefix) / "built" / overlay
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "all.yaml").write_text(_built(overlay))
        yield from _checkov(folder, "kubernetes")


def queries() -> Iterator[str]:
    declared = tomllib.loads((OBSERVABILITY / "alerts.toml").read_text())
    panels = json.loads((OBSERVABILITY / "grafana" / "pipeline.json").read_text())["panels"]
    found = [(alert["name"], alert["query"]) for alert in declared["alerts"]]
    found += [
        (rule["alert"], rule["expr"])
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
    ]
    found += [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]
    for name, query in found:
        try:  # what Grafana fills in
            promql_parser.parse(query.replace("$__range", "5m").replace("$__rate_interval", "5m"))
        except ValueError as error:
            yield f"{name}: {error}"


def rules_of_prometheus() -> Iterator[str]:
    done = _run("promtool", "check", "rules", str(RULES))
    if done.returncode:
        yield done.stdout + done.stderr


def _built(overlay: str) -> str:
    done = _run(str(Path(sys.executable).with_name("kubectl")), "kustomize", str(KUBERNETES / overlay))
    if done.returncode:
        raise SystemExit(f"kustomize: {overlay}: {done.stderr}")
    return done.stdout


def _checkov(folder: Path, framework: str) -> Iterator[str]:
    """`checkov.yaml` lists the policies that are skipped, each with its reason."""
    config = str(Path(__file__).with_name("checkov.yaml"))
    command = ["checkov", "--config-file", config, "--framework", framework, "--directory", str(folder)]
    done = _run(sys.executable, str(Path(sys.executable).with_name(command[0])), *command[1:])
    if done.returncode:
        yield (done.stdout + done.stderr).strip()


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    quiet = {**os.environ, "LOG_LEVEL": "ERROR", "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": os.devnull}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=quiet, timeout=300)


CHECKS: tuple[Callable[[], Iterator[str]], ...] = (
    arguments_of_terraform,
    format_of_terraform,
    policies_of_terraform,
    manifests,
    policies_of_kubernetes,
    queries,
    rules_of_prometheus,
)


NEEDS = {format_of_terraform: "terraform", rules_of_prometheus: "promtool"}  # the others come with this environment


def main() -> int:
    failed = False
    for check in CHECKS:
        program = NEEDS.get(check)
        if program and not shutil.which(program):
            found, result = list[str](), f"skipped: no {program} here"
        else:
            found = list(check())
            result = "wrong" if found else "ok"
        failed |= bool(found)
        sys.stdout.write("\n".join([f"{check.__name__.replace('_', ' ')}: {result}", *found]) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
