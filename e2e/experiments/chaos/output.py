"""What a run shows while it runs: its own lines on stderr, and nothing that a library or a child process writes."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def own_lines_only() -> Iterator[Console]:
    """The console writes to stderr; everything else that this process and its children write meanwhile is dropped.

    It works on file descriptors, because gRPC writes its warnings to them.
    """
    saved = os.dup(1), os.dup(2)
    with os.fdopen(os.dup(2), "w") as stderr, tempfile.TemporaryFile() as dropped:
        for descriptor in (1, 2):
            os.dup2(dropped.fileno(), descriptor)
        try:
            yield Console(file=stderr, highlight=False)
        finally:
            for descriptor, original in zip((1, 2), saved, strict=True):
                os.dup2(original, descriptor)
                os.close(original)
