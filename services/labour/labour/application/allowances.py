"""What this deployment allows: which countries are texted, and what an account may use in a day, over all its labours."""

from collections.abc import Set
from dataclasses import dataclass

from servicekit.countries import COUNTRIES


@dataclass(frozen=True, slots=True)
class Allowances:
    """`countries` are ISO 3166 codes. The numbers are limits of one account in one day: labours planned, people added, SMS
    segments.
    """

    countries: Set[str] = frozenset(COUNTRIES.split())
    labours: int = 5
    people: int = 60
    segments: int = 1000


DEFAULT_ALLOWANCES = Allowances()
