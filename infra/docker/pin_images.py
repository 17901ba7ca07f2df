"""`make pin-images`: add the digest of each image to its tag, in the Dockerfiles and compose files below the current directory.

The registries are asked with `docker buildx imagetools`. If one does not answer for one image, nothing is changed. An image that
has a digest gets the one that its tag has now.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import click

FILES = (
    "services/labour/Dockerfile",
    "services/notification/Dockerfile",
    "infra/docker/Dockerfile",
    "docker-compose.yml",
    "infra/docker/google-bus.yml",
)
IMAGE = re.compile(r"^(FROM |    image: )(?!fernlabour-)([^\s@]+)(?:@sha256:[0-9a-f]+)?", re.MULTILINE)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TIMEOUT = 60.0


def resolve(image: str) -> str:
    """The digest of an image in its registry. Raises `LookupError` with the reason if the registry does not return one."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{json .Manifest}}"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise LookupError(str(error)) from error
    if asked.returncode != 0:
        raise LookupError((asked.stderr.strip().splitlines() or ["docker buildx failed"])[0])
    try:
        digest = json.loads(asked.stdout)["digest"]
    except (ValueError, KeyError, TypeError):
        digest = asked.stdout
    if not DIGEST.fullmatch(digest):
        raise LookupError(f"no digest in {asked.stdout!r}")
    return str(digest)


def main() -> int:
    texts = {Path(file): Path(file).read_text() for file in FILES}
    digests, problems = dict[str, str](), list[str]()
    for image in sorted({match[2] for text in texts.values() for match in IMAGE.finditer(text)}):
        try:
            digests[image] = resolve(image)
        except LookupError as error:
            problems.append(f"  {image}: {error}")
    if problems:
        click.echo("error: these images could not be resolved, so nothing was changed:", err=True)
        click.echo("\n".join(problems), err=True)
        return 1
    for path, text in texts.items():
        path.write_text(IMAGE.sub(lambda match: f"{match[1]}{match[2]}@{digests[match[2]]}", text))
    for image, digest in digests.items():
        click.echo(f"{image}@{digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
