"""A small run of `fern fairness`: what is counted are texts, not seconds."""

from xml.etree import ElementTree as ET

from e2e.experiments.documentation import END
from e2e.experiments.fairness import __main__ as fairness
from e2e.experiments.fairness.run import ANNOUNCED, BIRTH, PEOPLE, Load, Waited
from fern.runtime.postgres import TemporaryServer


async def test_in_one_queue_the_birth_is_behind_all_texts_and_with_turns_behind_none(postgres: TemporaryServer) -> None:
    results = await fairness.compare(Load(people=10, announcements=3, rate=1e6, in_flight=1), postgres)

    queue, turns = results["one queue for all"], results[fairness.OURS]
    assert queue[BIRTH].behind > 20, "texts to a person whose call is under way wait for it"
    assert turns[BIRTH].behind == 0
    assert turns[ANNOUNCED].behind <= 2 * PEOPLE


def test_the_chart_is_an_image_that_says_in_words_what_it_shows() -> None:
    waits = {BIRTH: Waited(100.5, 1000), ANNOUNCED: Waited(100.2, 1000)}

    root = ET.fromstring(fairness.chart(dict.fromkeys(fairness.DESIGNS, waits)))

    assert len(root.findall("{*}rect")) == 4
    assert "100.5 seconds with one queue for all" in str(root.findtext("{*}desc"))


def test_the_page_has_the_table_and_the_chart_of_a_run_with_fifty_people_and_twenty_announcements() -> None:
    section = fairness.PAGE.read_text().partition("fern fairness --write-docs")[2].partition(END)[0]

    assert "--people 50 --announcements 20" in section
    assert all(f"| {title} |" in section for title in fairness.KINDS.values())
    assert ET.parse(fairness.CHART).getroot().tag.endswith("svg")
