"""The settings of a run: one JSON document from the operator, checked once against `settings.schema.json`.

An unknown key is rejected, so a field of the operator that the runner does not enforce fails loudly.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import regex

SCHEMA = json.loads(Path(__file__).with_name("settings.schema.json").read_text(encoding="utf-8"))
NORMALIZERS = ("timestamps", "durations", "addresses", "uuids", "paths", "order")


class SettingsError(Exception):
    """The settings do not conform to the schema."""


class PatternInvalid(Exception):
    """A custom pattern does not compile or used up its time."""


@dataclass(frozen=True)
class Pattern:
    """A custom pattern. The replacement is literal text: a template could copy the match and hide nothing."""

    text: str
    replacement: str
    compiled: regex.Pattern[str]


@dataclass(frozen=True)
class Comparison:
    is_exact: bool = False
    float_tolerance: float = 0.0001
    image_tolerance: float = 0.02
    ignore: frozenset[str] = frozenset({"timestamps", "addresses"})
    ignore_output_types: frozenset[str] = frozenset()
    patterns: tuple[Pattern, ...] = ()


@dataclass(frozen=True)
class Checks:
    """The effective checks. The operator resolves the level."""

    fail_on_stderr: bool = False
    fail_on_warnings: bool = False
    allow_skipped: bool = True


@dataclass(frozen=True)
class Expectation:
    cell: int
    type: str | None = None
    shape: tuple[int, ...] | None = None
    min_value: float | None = None
    max_value: float | None = None
    not_empty: bool = False


@dataclass(frozen=True)
class Settings:
    """`cell_timeout` is in seconds, `max_bytes` the limit of the compressed result."""

    uid: str
    attempt: int
    commit: str
    image: str
    golden_commit: str | None = None
    kernel: str | None = None
    cell_timeout: float | None = None
    comparison: Comparison = field(default_factory=Comparison)
    checks: Checks = field(default_factory=Checks)
    expectations: tuple[Expectation, ...] = ()
    store: str = "Diff"
    max_bytes: int = 64 * 1024


def parse(text: str) -> Settings:
    """Parses the settings.

    # Errors
    `SettingsError` names the first key that is missing, unknown or out of range; `PatternInvalid` a pattern.
    """
    try:
        values = json.loads(text)
        jsonschema.Draft202012Validator(SCHEMA).validate(values)
    except jsonschema.ValidationError as error:
        raise SettingsError(f"settings: {error.json_path}: {error.message[:200]}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"settings: not JSON: {error}") from error
    expectations = tuple(_expectation(item) for item in values.get("expectedOutputs", []))
    if len({item.cell for item in expectations}) != len(expectations):
        raise SettingsError("settings: 'expectedOutputs' has two items for one cell")
    checks = values["checks"]
    return Settings(
        uid=values["uid"],
        attempt=values["attempt"],
        commit=values["commit"],
        image=values["image"],
        golden_commit=values.get("goldenCommit"),
        kernel=values.get("kernel"),
        cell_timeout=values.get("cellTimeout"),
        comparison=_comparison(values.get("comparison", {})),
        checks=Checks(checks["failOnStderr"], checks["failOnWarnings"], checks["allowSkipped"]),
        expectations=expectations,
        store=values.get("store", "Diff"),
        max_bytes=values.get("maxBytes", 64 * 1024),
    )


def _comparison(values: dict[str, Any]) -> Comparison:
    default = Comparison()
    return Comparison(
        is_exact=values.get("strategy") == "exact",
        float_tolerance=float(values.get("floatTolerance", default.float_tolerance)),
        image_tolerance=float(values.get("imageTolerance", default.image_tolerance)),
        ignore=frozenset(values.get("ignore", default.ignore)),
        ignore_output_types=frozenset(values.get("ignoreOutputTypes", ())),
        patterns=tuple(_pattern(item["pattern"], item["replaceWith"]) for item in values.get("customPatterns", [])),
    )


def _pattern(text: str, replacement: str) -> Pattern:
    try:
        return Pattern(text, replacement, regex.compile(text))
    except (regex.error, RecursionError, MemoryError, OverflowError, ValueError) as error:
        raise PatternInvalid(f"pattern '{text[:80]}' is invalid: {error}") from error


def _expectation(values: dict[str, Any]) -> Expectation:
    least, most, shape = (values.get(key) for key in ("minValue", "maxValue", "shape"))
    return Expectation(
        cell=values["cell"],
        type=values.get("type"),
        shape=None if shape is None else tuple(int(size) for size in shape.split(",")),
        min_value=None if least is None else float(least),
        max_value=None if most is None else float(most),
        not_empty=values.get("notEmpty", False),
    )
