from fern.commands.demo import problem_with
from fern.demo import NOTIFYING, Text

PEOPLE = {"Grace": "+12025550111", "Alan": "+12025550122"}
ALL = [Text(name, phone, "…", event) for name, phone in PEOPLE.items() for event in NOTIFYING]


def test_one_text_each_for_every_event_is_fine() -> None:
    assert problem_with(PEOPLE, ALL) is None


def test_a_missing_text_is_told_with_its_person() -> None:
    assert problem_with(PEOPLE, ALL[:-1]) == "Alan got no texts about labour.completed instead of one."


def test_a_second_text_is_told_with_its_person() -> None:
    assert problem_with(PEOPLE, [*ALL, ALL[0]]) == "Grace got 2 texts about labour.begun instead of one."


def test_a_text_that_no_notification_knows_is_told() -> None:
    stray = Text("Grace", PEOPLE["Grace"], "…", None)

    assert problem_with(PEOPLE, [*ALL, stray]) == "Grace got 1 more text(s) than there are notifications."
