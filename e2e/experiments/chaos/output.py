"""Limits the output of a run to its own lines on stderr: what a library or a child process writes is dropped."""

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
