"""What `terraform.problems` finds. Run by `make check-deploy`, in whose environment its tools are."""

import tempfile
import unittest
from pathlib import Path

import terraform

TOPIC = """
resource "google_pubsub_topic" "events" {
  name = "events"
%s
}
"""


def problems(text: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "main.tf").write_text(text)
        return list(terraform.problems(Path(folder)))


class Problems(unittest.TestCase):
    def test_a_resource_with_arguments_that_exist_has_none(self) -> None:
        assert problems(TOPIC % '  labels = { a = "b" }') == []

    def test_an_argument_that_does_not_exist_is_one(self) -> None:
        [found] = problems(TOPIC % "  retention = 7")
        assert "there is no argument retention in pubsub.Topic" in found

    def test_a_resource_of_the_provider_google_beta_is_one(self) -> None:
        [found] = problems(
            'resource "google_project_service_identity" "pubsub" {\n  service = "pubsub.googleapis.com"\n}\n'
        )
        assert "google_project_service_identity exists in the provider google-beta only" in found

    def test_a_local_value_that_is_only_the_name_of_an_argument_is_one(self) -> None:
        [found] = problems(
            'locals {\n  prefix = "fern"\n}\n' + TOPIC % "  labels = { a = local.prefix, b = local.name }"
        )
        assert found == "local.name is used and not declared"


if __name__ == "__main__":
    unittest.main()
