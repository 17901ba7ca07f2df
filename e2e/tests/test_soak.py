"""A short run of `fern soak`, and when it says that something grows."""

import json
import random
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from e2e.experiments.soak import __main__ as soak
from e2e.experiments.soak.chart import svg
from e2e.experiments.soak.growth import ENOUGH, MEASURES, judge
from e2e.support.installation import FERN


@pytest.mark.system
def test_a_short_soak_samples_every_measure_and_its_audit_is_clean(tmp_path: Path) -> None:
    chart = tmp_path / "soak.svg"
    command = [FERN, "soak", "--minutes", "0.2", "--seed", "1", "--no-faults", "--json", "--svg", str(chart)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["clean"] is True
    assert report["events"] > 0
    assert {name.partition("/")[0] for sample in report["samples"] for name in sample} == {"at", *MEASURES}
    assert report["verdicts"] == [], "too short to say"
    assert ET.parse(chart).getroot().tag.endswith("svg")


def samples(series: str, *values: float) -> list[dict[str, float]]:
    return [{series: value} for value in values]


def test_a_leak_grows_and_noise_warm_up_and_a_spike_do_not() -> None:
    draw = random.Random(1)
    noise = [90 + draw.uniform(-2, 2) for _ in range(100)]
    leak = [value + second * 0.5 for second, value in enumerate(noise)]
    warm_up = [40 + 5 * second if second < 10 else value for second, value in enumerate(noise)]
    spike = [value + 200 * (80 < second < 90) for second, value in enumerate(noise)]

    grows = {
        name: [one.grows for one in judge(samples("memory/labour-api", *values))]
        for name, values in (("leak", leak), ("noise", noise), ("warm-up", warm_up), ("spike", spike))
    }

    assert grows == {"leak": [True], "noise": [False], "warm-up": [False], "spike": [False]}


def test_nothing_is_said_about_a_series_with_too_few_samples() -> None:
    assert judge(samples("latency", *range(ENOUGH))) == []


def test_latency_is_not_compared_if_the_machine_was_busier() -> None:
    def run(load: float) -> list[dict[str, float]]:
        return [{"latency": 40.0, "load": 1.0}] * 50 + [{"latency": 400.0, "load": load}] * 50

    quiet, busy = ({one.series: one for one in judge(run(load))}["latency"] for load in (1.2, 4.0))
    assert quiet.grows
    assert not busy.grows
    assert not busy.comparable


def test_the_chart_is_an_image_with_a_panel_for_every_measure_and_a_description() -> None:
    drawn = svg([0.0, 1.0], [dict.fromkeys(MEASURES, 1.0), dict.fromkeys(MEASURES, 2.0)])

    root = ET.fromstring(drawn)
    assert len(root.findall("{*}polyline")) == len(MEASURES)
    description = root.findtext("{*}desc")
    assert all(measure.title in str(description) for measure in MEASURES.values())


def test_the_documentation_has_the_table_and_the_chart_of_a_run_of_ten_minutes_or_more() -> None:
    section = soak.PAGE.read_text().partition(soak.BEGIN)[2].partition(soak.END)[0]

    minutes = float(section.partition("fern soak --minutes ")[2].partition(" ")[0])
    assert minutes >= 10
    assert all(f"| {measure.title}" in section for measure in MEASURES.values())
    assert "**yes**" not in section
    assert ET.parse(soak.CHART).getroot().tag.endswith("svg")
