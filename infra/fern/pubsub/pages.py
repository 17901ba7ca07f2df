"""Paging through names: sorted, and the token is the last name seen, so that it survives changes in between."""

from collections.abc import Iterable
from typing import Final

from fern.pubsub.errors import invalid

_DEFAULT_SIZE: Final = 100
_LARGEST_SIZE: Final = 1000


def page(names: Iterable[str], size: int, token: str) -> tuple[list[str], str]:
    """Returns one page of names and the token of the next, empty after the last."""
    if size < 0:
        raise invalid(f"page_size: {size} is negative")
    size = min(size or _DEFAULT_SIZE, _LARGEST_SIZE)
    rest = sorted(name for name in names if name > token)
    chosen = rest[:size]
    return chosen, chosen[-1] if len(rest) > size else ""
