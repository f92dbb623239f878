"""The pairs: the verdict and the class of each, and a pair or a test for each false success of the specification."""

import json
from pathlib import Path

import pytest

from notebook_runner.compare import Match
from tests import image_pairs
from tests.pairs import PAIRS, Pair, cell, document, out
from tests.recorded import judged

TESTS = Path(__file__).parent
# False successes that two notebooks cannot express: the tests that show them. `operator` means that the container of
# the runner has no part in it; tests of the operator and of `step` show it.
SHOWN_BY = {
    "F1": ["test_run.py: f1_f3_inputs_of_another_commit_are_rejected"],
    "F2": ["operator"],
    "F4": ["operator"],
    "F5": ["operator"],
    "F6": ["operator"],
    "F7": ["operator"],
    "F8": ["operator"],
    "F9": ["operator"],
    "F10": ["operator"],
    "F13": ["test_run.py: f13_a_kernel_that_ends_by_itself_is_a_failure_of_its_cell"],
    "F14": ["test_run.py: f14_lost_output_is_lost_evidence"],
    "F15": ["test_run.py: f15_a_report_of_an_earlier_attempt_is_overwritten_first"],
    "F16": ["test_report.py: f16_a_report_is_below_its_limit_and_complete"],
    "F21": ["test_run.py: f21_a_verdict_is_reached_once"],
    "F22": ["test_run.py: f22_the_frame_is_complete_before_the_report"],
}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_pair(pair: Pair) -> None:
    reason, klass, verdict = judged(pair)
    assert reason == pair.reason
    assert klass == pair.klass or pair.reason != "Mismatch"
    if verdict is not None and reason is None:
        counts = verdict.counts
        assert counts["total"] == counts["succeeded"] + counts["skipped"]
        assert counts["succeeded"] >= 1
        assert counts["compared"] >= 1
        assert counts["matched"] + counts["ignored"] == counts["total"]
        assert verdict.comparison.count(Match.MISMATCHED) == 0


def test_r65_whole_notebooks_are_compared() -> None:
    named = {pair.name: pair for pair in PAIRS}
    for name in ("F17-cut-after-50-lines", "F17-run-cut-after-50-lines", "F14-middle-line-lost"):
        assert judged(named[name])[0] == "Mismatch"
    # The outputs of all successful cells are compared, not only of the first or the last.
    for place in range(3):
        cells = [cell(f"c{number}()", out(f"{number}\n")) for number in range(3)]
        changed = [cell(f"c{number}()", out(f"{number + (number == place)}\n")) for number in range(3)]
        pair = Pair("r65", json.dumps(document(cells)).encode(), document(changed), "Mismatch")
        reason, _, verdict = judged(pair)
        assert verdict is not None
        assert (reason, verdict.cell, verdict.counts["matched"]) == ("Mismatch", place, 2)


def test_there_are_200_pairs_and_100_must_fail() -> None:
    assert len(PAIRS) >= 200
    assert sum(pair.must_fail for pair in PAIRS) >= 100


@pytest.mark.parametrize("fault", [f"F{number}" for number in range(1, 24)])
def test_each_false_success_has_a_pair_or_a_test(fault: str) -> None:
    pairs = [pair for pair in PAIRS if pair.name.startswith(f"{fault}-")]
    assert all(pair.must_fail for pair in pairs)
    named = SHOWN_BY.get(fault, [])
    assert pairs or named
    for place in named:
        if place != "operator":
            file, name = place.split(": ")
            assert f"def test_{name}(" in (TESTS / file).read_text()


@pytest.mark.parametrize("pair", image_pairs.PAIRS, ids=lambda pair: pair.name)
def test_image_pair(pair: image_pairs.ImagePair) -> None:
    found = image_pairs.figures(pair)
    is_equal = not isinstance(found, str) and found.worst <= 0.02
    assert is_equal == pair.is_equal


def test_the_mean_would_not_find_a_missing_point() -> None:
    found = {pair.name: image_pairs.figures(pair) for pair in image_pairs.PAIRS if "missing" in pair.name}
    missing = found["one point of 100 missing"]
    assert not isinstance(missing, str)
    assert missing.mean < 0.02 < missing.worst


def test_there_are_40_pairs_of_images() -> None:
    assert len(image_pairs.PAIRS) >= 40
