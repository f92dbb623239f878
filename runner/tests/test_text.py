"""Bounds and details of texts, notebooks and settings that pairs do not show."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from notebook_runner import notebook, settings, text
from notebook_runner.judge import unmet
from notebook_runner.settings import Comparison, Expectation, PatternInvalid, SettingsError
from tests import pod


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [
        (r"(x+x+)+y", True),
        (r"(?e)(?:abcdefgh){e<=20}", True),
        ("((((x{1,500}){1,500}){1,500}){1,500})y", True),
        (r"(?R)?x", True),
        (r"(?:x|x)*?z|(x+)+\b", True),
        ("x*", False),
    ],
)
def test_attack_a_pattern_ends_within_its_time(pattern: str, is_slow: bool) -> None:
    values = pod.settings(comparison={"customPatterns": [{"pattern": pattern, "replaceWith": "n"}]})
    normalizer = text.Normalizer(settings.parse(json.dumps(values)).comparison)
    start = time.process_time()
    if is_slow:
        with pytest.raises(PatternInvalid):
            normalizer.normalize("x" * 200_000)
    else:
        normalizer.normalize("x" * 200_000)
    assert time.process_time() - start < 3


def test_the_time_for_patterns_is_shared_by_the_texts_of_a_cell() -> None:
    values = pod.settings(comparison={"customPatterns": [{"pattern": "x", "replaceWith": "n"}]})
    normalizer = text.Normalizer(settings.parse(json.dumps(values)).comparison)
    normalizer.normalize("x" * 20_000)
    assert 0 < normalizer.seconds < text.PATTERN_SECONDS
    normalizer.seconds = 0
    with pytest.raises(PatternInvalid):
        normalizer.normalize("x")


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "(?P<n>a)(?P<n", "a{2,1}", "\\", "(?<name"])
def test_an_invalid_pattern_is_named(pattern: str) -> None:
    values = pod.settings(comparison={"customPatterns": [{"pattern": pattern, "replaceWith": ""}]})
    with pytest.raises(PatternInvalid, match="is invalid"):
        settings.parse(json.dumps(values))


@pytest.mark.parametrize(
    "content",
    [
        "\x1b[" * 200_000,
        "\x1b]" + "a" * 500_000,
        "1.5e" * 200_000,
        "2025-01-" * 100_000,
        "/a" * 200_000,
        "a-1." * 200_000,
        *("\r" * 500_000, "\b" * 500_000, "Mon " * 200_000, "1:" * 200_000, "0x" + "f" * 500_000, "1" * 500_000),
    ],
    ids=lambda content: repr(content[:8]),
)
def test_attack_built_in_rules_are_linear(content: str) -> None:
    start = time.process_time()
    rules = Comparison(ignore=frozenset(settings.NORMALIZERS))
    found = text.Normalizer(rules).normalize(text.overwritten(content)).text
    text.texts_equal(found, found + "x", 0.1)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"comparison": {"strategy": "exact", "ignore": []}}, "too many properties"),
        ({"comparison": {"floatTolerance": "nan"}}, "floatTolerance"),
        ({"comparison": {"floatTolerance": "2"}}, "floatTolerance"),
        ({"comparison": {"ignore": ["everything"]}}, "everything"),
        ({"unknown": 1}, "unknown"),
        ({"commit": "main"}, "commit"),
        ({"cellTimeout": 0}, "cellTimeout"),
        ({"expectedOutputs": [{"cell": 0}]}, "expectedOutputs"),
        ({"expectedOutputs": [{"cell": 0, "notEmpty": True}, {"cell": 0, "type": "int"}]}, "two items"),
        ({"checks": {"failOnStderr": False}}, "checks"),
    ],
)
def test_settings_are_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings.parse(json.dumps(pod.settings(**changed)))


def test_each_setting_is_read() -> None:
    comparison: dict[str, Any] = {"floatTolerance": "0.5", "imageTolerance": "0.25", "ignore": ["uuids"]}
    comparison |= {"ignoreOutputTypes": ["stream"], "customPatterns": [{"pattern": "a", "replaceWith": "b"}]}
    item = {"cell": 3, "type": "int", "shape": "-1,2", "minValue": "-1.5", "maxValue": "2", "notEmpty": True}
    values = pod.settings(
        goldenCommit="e" * 64, kernel="ir", cellTimeout=5, store="Full", maxBytes=2048, expectedOutputs=[item],
        comparison=comparison, checks={"failOnStderr": True, "failOnWarnings": True, "allowSkipped": False},
    )  # fmt: skip
    assert values.keys() == settings.SCHEMA["properties"].keys()
    found = settings.parse(json.dumps(values))
    default = settings.parse(json.dumps(pod.settings()))
    changed = {"golden_commit", "kernel", "cell_timeout", "store", "max_bytes", "expectations", "comparison", "checks"}
    assert {name for name in vars(found) if vars(found)[name] != vars(default)[name]} == changed
    assert found.expectations == (Expectation(3, "int", (-1, 2), -1.5, 2.0, True),)


@pytest.mark.parametrize(
    ("expected", "observed", "is_met"),
    [
        (Expectation(0, type="int"), {"type": "int"}, True),
        (Expectation(0, type="numpy.ndarray"), {"type": "ndarray", "qualified": "numpy.ndarray"}, True),
        (Expectation(0, type="int"), {"type": "float"}, False),
        (Expectation(0, shape=(-1, 2)), {"shape": [7, 2]}, True),
        (Expectation(0, shape=(-1, 2)), {"shape": [2, 7]}, False),
        (Expectation(0, shape=(2,)), {"shape": [2, 1]}, False),
        (Expectation(0, shape=(2,)), {"shape": None}, False),
        (Expectation(0, not_empty=True), {"size": 1}, True),
        (Expectation(0, not_empty=True), {"size": 0}, False),
        (Expectation(0, not_empty=True), {}, False),
        (Expectation(0, min_value=1), {"min": 1, "max": 5}, True),
        (Expectation(0, min_value=1), {"min": 0.9, "max": 5}, False),
        (Expectation(0, max_value=5), {"min": 1, "max": 5.1}, False),
        (Expectation(0, max_value=5), {"min": 1, "max": 2, "hasNan": True}, False),
        (Expectation(0, max_value=5), {"min": float("nan"), "max": float("nan")}, False),
        (Expectation(0, max_value=5), {"min": None, "max": None}, False),
        (Expectation(0, not_empty=True), {"error": "KeyError: 1"}, False),
        (Expectation(0, not_empty=True), None, False),
    ],
)
def test_expectations(expected: Expectation, observed: dict[str, Any] | None, is_met: bool) -> None:
    assert (unmet(expected, observed) is None) == is_met


def test_too_many_cells_are_invalid() -> None:
    content = json.dumps(pod.document(["1"] * (notebook.MAX_CELLS + 1))).encode()
    with pytest.raises(notebook.NotebookInvalid, match="more than 2000 cells"):
        notebook.parse(content, "notebook")


def test_attack_a_link_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        notebook.read_file(tmp_path / "link")
    with pytest.raises(notebook.NotebookInvalid, match="regular file"):
        notebook.read_file(Path("/dev/null"))


def test_a_notebook_of_version_3_is_converted() -> None:
    cell = {"cell_type": "code", "input": ["1"], "language": "python", "metadata": {}, "prompt_number": 1}
    output = {"output_type": "pyout", "text": ["1"], "metadata": {}, "prompt_number": 1}
    raw = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {},
        "worksheets": [{"cells": [cell | {"outputs": [output]}]}],
    }
    found = notebook.parse(json.dumps(raw).encode(), "notebook")
    assert not found.has_ids
    assert [(entry.source, entry.outputs[0].data) for entry in found.cells] == [("1", {"text/plain": "1"})]
