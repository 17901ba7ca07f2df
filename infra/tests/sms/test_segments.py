import pytest

from fern.sms.segments import count_segments


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", 1),
        ("x" * 160, 1),
        ("x" * 161, 2),
        ("x" * 306, 2),
        ("x" * 307, 3),
        ("€" * 80, 1),
        ("€" * 81, 2),
        ("x" * 152 + "€" + "x" * 152, 3),  # the euro sign does not fit into the first part and pushes the rest
        ("á" * 70, 1),
        ("á" * 71, 2),
        ("á" * 134, 2),
        ("á" * 135, 3),
        ("x" * 138 + "🌿", 3),  # one emoji, and 140 characters cost three
        ("🌿" * 35, 1),
        ("🌿" * 36, 2),
        ("🌿" * 67, 3),  # 33 to a part: a pair is never torn
    ],
)
def test_segments_are_counted_as_the_network_counts_them(text: str, segments: int) -> None:
    assert count_segments(text) == segments
