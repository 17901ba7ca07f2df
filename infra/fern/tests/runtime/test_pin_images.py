import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fern.settings import PROJECT_ROOT

SCRIPT = PROJECT_ROOT / "infra/docker/pin_images.py"
FILES = (
    "docker-compose.yml",
    "infra/docker/google-bus.yml",
    *(f"{folder}/Dockerfile" for folder in ("services/labour", "services/notification", "infra/docker")),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in FILES:
        (tmp_path / "checkout" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT_ROOT / file, tmp_path / "checkout" / file)
    return tmp_path / "checkout"


def pin(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT], cwd=checkout, capture_output=True, text=True, check=False)


def contents(checkout: Path) -> dict[str, str]:
    return {file: (checkout / file).read_text() for file in FILES}


@pytest.mark.system
def test_every_image_that_is_not_ours_gets_its_digest_and_again_the_newest(
    checkout: Path, fake_docker: Callable[[str], None], tmp_path: Path
) -> None:
    digest = tmp_path / "digest"
    fake_docker(f"cat {digest}")
    for number in ("a", "b"):
        digest.write_text(json.dumps({"mediaType": "an index", "digest": f"sha256:{number * 64}"}))

        assert pin(checkout).returncode == 0

        after = contents(checkout)
        assert (
            "".join(after.values()).count(f"@sha256:{number * 64}") == 10
        )  # two stages of three images, two of compose, Google's
        before = {file: (PROJECT_ROOT / file).read_text() for file in FILES}
        assert {file: text.replace(f"@sha256:{number * 64}", "") for file, text in after.items()} == before


@pytest.mark.system
@pytest.mark.parametrize("answer", ["printf 'no such host\\n\\nhelp' >&2; exit 1", "echo latest", "echo {}"])
def test_if_one_image_cannot_be_resolved_nothing_is_written(
    checkout: Path, fake_docker: Callable[[str], None], answer: str
) -> None:
    fake_docker(f'case "$4" in postgres:*) {answer};; *) echo \'{{"digest": "sha256:{"c" * 64}"}}\';; esac')
    before = contents(checkout)

    refused = pin(checkout)

    assert refused.returncode == 1
    assert "postgres:18" in refused.stderr
    assert ("no such host" in refused.stderr) == ("no such host" in answer)
    assert contents(checkout) == before
