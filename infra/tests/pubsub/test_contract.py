"""The contract itself is complete."""

import re
from pathlib import Path

from .parts import GOOGLE_DEVIATES

HERE = Path(__file__).parent


def test_every_one_of_the_48_cases_has_a_test() -> None:
    names = re.findall(r"^async def test((?:_\d\d)+)_", _sources(), re.MULTILINE)

    numbers = {int(number) for name in names for number in name.strip("_").split("_")}

    assert numbers == set(range(1, 49))


def test_every_deviation_of_googles_is_asserted_and_no_other() -> None:
    asserted = {int(number) for number in re.findall(r"bus\.deviates\((\d+)\)", _sources())}

    assert asserted == set(GOOGLE_DEVIATES)


def _sources() -> str:
    return "\n".join(path.read_text() for path in HERE.glob("test_contract_*.py"))
