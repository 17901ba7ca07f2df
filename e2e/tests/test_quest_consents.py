"""Where a design checks the consent: each is wrong where its page says, and ours nowhere."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.experiments.quest.consents import (
    COMMAND,
    FAULTS,
    SEND,
    WRITE,
    CheckedWhenTaken,
    CheckedWhenWritten,
    Ours,
    Results,
    broken,
    orders,
    pages,
    run_designs,
)
from fern.runtime.postgres import TemporaryServer


@pytest.fixture(scope="module")
def results(postgres: TemporaryServer, tmp_path_factory: pytest.TempPathFactory) -> Results:
    directory: Path = tmp_path_factory.mktemp("sms")
    return asyncio.run(run_designs(postgres, directory))


def test_every_order_is_tried_once() -> None:
    tried = list(orders())

    assert len(tried) == len(set(tried)) == 19
    assert all(order.index(WRITE) < order.index(SEND) for order in tried)


def test_each_design_is_wrong_where_it_is_known_to_be_and_ours_nowhere(results: Results) -> None:
    wrong = {name: [(one.without_consent, one.never_came) for one in by.values()] for name, by in results.items()}

    assert wrong == {
        CheckedWhenWritten.name: [(1, 2), (1, 2), (2, 2)],
        CheckedWhenTaken.name: [(0, 1), (0, 1), (0, 1)],
        Ours.name: [(0, 0)] * len(FAULTS),
    }
    assert broken(results) == []
    assert all(one.sent for one in results[Ours.name].values())


def test_a_design_under_our_name_that_texts_without_consent_is_reported(results: Results) -> None:
    counts = results[Ours.name]
    worse = counts | {FAULTS[1]: replace(counts[FAULTS[1]], without_consent=1)}

    assert broken(results | {Ours.name: worse}) == [FAULTS[1]]


def test_the_page_has_the_numbers_of_this_run(results: Results) -> None:
    for path, text in pages(results).items():
        assert path.read_text() == text, f"run `{COMMAND}`: it writes {path.name}"
