import pytest

from fern.commands.demo import problem_with
from fern.demo import CONSENT_REQUESTED, NOTIFYING, Text

PEOPLE = {"Grace": "+12025550111", "Alan": "+12025550122"}
ALL = [Text(name, phone, "…", event) for name, phone in PEOPLE.items() for event in NOTIFYING]
QUESTION = Text("Grace", PEOPLE["Grace"], "…", CONSENT_REQUESTED)
STRAY = Text("Grace", PEOPLE["Grace"], "…", None)
VERDICTS = {
    "one text each for every event": (ALL, None),
    "a question for consent": ([QUESTION, *ALL], None),
    "a second question": (
        [QUESTION, QUESTION, *ALL],
        "Grace got 2 more text(s) than there are notifications.",
    ),
    "a missing text": (ALL[:-1], "Alan got no texts about labour.completed instead of one."),
    "a second text": ([*ALL, ALL[0]], "Grace got 2 texts about labour.begun instead of one."),
    "a text without a notification": ([*ALL, STRAY], "Grace got 1 more text(s) than there are notifications."),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_the_demo_names_the_person_with_a_missing_or_extra_text(case: str) -> None:
    texts, problem = VERDICTS[case]

    assert problem_with(PEOPLE, texts) == problem
