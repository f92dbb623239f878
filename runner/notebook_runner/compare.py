"""Compares the cells of a run with those of the golden notebook."""

import dataclasses
import difflib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from notebook_runner import images, text
from notebook_runner.notebook import IGNORE_TAG, Cell, Notebook, Output, is_json
from notebook_runner.settings import NORMALIZERS, Comparison, PatternInvalid

# Their values are random IDs of a connection that no longer exists.
WIDGET = "application/vnd.jupyter.widget-view+json"


class Match(StrEnum):
    MATCHED = "Matched"
    MISMATCHED = "Mismatched"
    IGNORED = "Ignored"


@dataclass
class Difference:
    """`kind` is the `diffType` of the status. `rule` names the MIME type and the check that failed."""

    cell: int
    kind: str
    rule: str
    expected: str = ""
    actual: str = ""
    klass: str = "Unknown"


@dataclass
class Result:
    """`matches` has cells of the run by index; a cell that did not run has none. `compared` counts outputs."""

    matches: dict[int, Match] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    compared: int = 0
    missing_cells: int = 0

    def count(self, match: Match) -> int:
        missing = self.missing_cells if match is Match.MISMATCHED else 0
        return missing + sum(found is match for found in self.matches.values())

    def classes(self) -> dict[str, int]:
        return dict(Counter(difference.klass for difference in self.differences))


@dataclass(frozen=True)
class Outcome:
    """The comparison of one output: equal, not comparable (`is_ignored`), or different by `rule`."""

    rule: str | None = None
    is_ignored: bool = False
    detail: tuple[str, str] | None = None


@dataclass(frozen=True)
class Rules:
    """`compares_stderr`: set if stderr fails the job anyway; else it is not part of a normalized comparison."""

    comparison: Comparison
    compares_stderr: bool


def has_outputs(golden: Notebook) -> bool:
    return any(cell.outputs for cell in golden.cells)


def compare(
    golden: Notebook, run: list[Cell], run_has_ids: bool, finished: set[int], rules: Rules, drift: str | None
) -> Result:
    """Compares the cells in `finished` with the golden notebook. `drift` is the result of `package_drift`.

    # Errors
    `PatternInvalid` if a custom pattern is too slow.
    """
    result = Result()
    for expected, actual in align(golden.cells, run, golden.has_ids and run_has_ids):
        if actual is None:
            assert expected is not None
            result.missing_cells += 1
            result.differences.append(Difference(expected.index, "MissingCell", "cells", expected.source))
        elif expected is None:
            result.matches[actual.index] = Match.MISMATCHED
            result.differences.append(Difference(actual.index, "ExtraCell", "cells", actual=actual.source))
        elif _source(expected) != _source(actual):
            result.matches[actual.index] = Match.MISMATCHED
            sources = expected.source, actual.source
            result.differences.append(Difference(actual.index, "SourceChanged", "source", *sources))
        elif actual.is_skipped or IGNORE_TAG in actual.tags:
            result.matches[actual.index] = Match.IGNORED
        elif actual.index in finished:
            _compare_cell(expected, actual, rules, result)
    for difference in result.differences:
        if difference.klass != "Noise" and drift is not None:
            difference.klass = "VersionDrift" if drift else "Regression"
            difference.rule += f"; packages: {drift}" if drift else ""
    return result


def _compare_cell(golden: Cell, run: Cell, rules: Rules, result: Result) -> None:
    normalizer = text.Normalizer(rules.comparison)
    expected, actual = merged(golden.outputs, rules), merged(run.outputs, rules)
    compared, differences = 0, []
    for position in range(max(len(expected), len(actual))):
        left = expected[position] if position < len(expected) else None
        right = actual[position] if position < len(actual) else None
        if left is None or right is None:
            kind = "ExtraOutput" if left is None else "MissingOutput"
            only = left or right
            assert only is not None
            if _is_ignored_type(only, rules.comparison):
                continue
            shown = _shown(only)
            texts = ("", shown) if left is None else (shown, "")
            differences.append(Difference(run.index, kind, only.name or only.kind, *texts))
            continue
        outcome = compare_output(left, right, rules.comparison, normalizer)
        if outcome.rule is None:
            compared += not outcome.is_ignored
            continue
        kind = "ErrorMismatch" if left.kind == right.kind == "error" else "OutputMismatch"
        texts = outcome.detail or (_shown(left), _shown(right))
        difference = Difference(run.index, kind, outcome.rule, texts[0], texts[1])
        noise = _noise(left, right, rules.comparison)
        if noise:
            difference.klass, difference.rule = "Noise", f"{outcome.rule}; equal with {noise}"
        differences.append(difference)
    result.differences += differences
    result.compared += compared + len(differences)
    if differences:
        result.matches[run.index] = Match.MISMATCHED
    elif compared or not (golden.outputs or run.outputs):
        result.matches[run.index] = Match.MATCHED
    else:
        result.matches[run.index] = Match.IGNORED


def align(golden: list[Cell], run: list[Cell], by_id: bool) -> Iterator[tuple[Cell | None, Cell | None]]:
    """Pairs cells: by ID if both files have IDs, between these by source, between these by position."""
    keys: list[Callable[[Cell], Hashable]] = [lambda cell: cell.id] if by_id else []
    yield from _align(golden, run, [*keys, _source])


def _align(
    golden: list[Cell], run: list[Cell], keys: list[Callable[[Cell], Hashable]]
) -> Iterator[tuple[Cell | None, Cell | None]]:
    if not keys:
        for position in range(max(len(golden), len(run))):
            left_cell = golden[position] if position < len(golden) else None
            yield left_cell, run[position] if position < len(run) else None
        return
    left, right = [keys[0](cell) for cell in golden], [keys[0](cell) for cell in run]
    # The time of difflib grows with the square of the cells that repeat; most notebooks are equal at once.
    if left == right:
        yield from zip(golden, run, strict=True)
        return
    for kind, start, end, run_start, run_end in difflib.SequenceMatcher(None, left, right, False).get_opcodes():
        if kind == "equal":
            yield from zip(golden[start:end], run[run_start:run_end], strict=True)
        else:
            yield from _align(golden[start:end], run[run_start:run_end], keys[1:])


def _source(cell: Cell) -> str:
    return cell.source.replace("\r\n", "\n").rstrip()


def merged(outputs: list[Output], rules: Rules) -> list[Output]:
    """Merges the streams of a cell per name: the kernel splits them at arbitrary times."""
    streams: dict[str, list[str]] = {}
    for output in outputs:
        if output.kind == "stream":
            streams.setdefault(output.name, []).append(output.text)
    found = []
    for output in outputs:
        if output.kind != "stream":
            found.append(output)
            continue
        parts = streams.pop(output.name, None)
        if parts is not None and (rules.comparison.is_exact or output.name != "stderr" or rules.compares_stderr):
            whole = "".join(parts)
            whole = whole if rules.comparison.is_exact else text.overwritten(whole)
            found.append(Output("stream", output.name, whole))
    return found


def _is_ignored_type(output: Output, rules: Comparison) -> bool:
    names = {output.kind, output.name} & rules.ignore_output_types
    return bool(names) or (bool(output.data) and all(_is_ignored_mime(mime, rules) for mime in output.data))


def _is_ignored_mime(mime: str, rules: Comparison) -> bool:
    return not rules.is_exact and (mime in rules.ignore_output_types or mime == WIDGET)


def compare_output(golden: Output, run: Output, rules: Comparison, normalizer: text.Normalizer) -> Outcome:
    """Compares two outputs at the same position."""
    if (golden.kind, golden.name) != (run.kind, run.name):
        return Outcome("type of output", detail=(golden.name or golden.kind, run.name or run.kind))
    if _is_ignored_type(golden, rules):
        return Outcome(is_ignored=True)
    if golden.kind == "stream":
        return _compare_value("text/plain", golden.text, run.text, rules, normalizer, golden.name)
    if golden.kind == "error":
        texts = ["\n".join(output.error) for output in (golden, run)]
        return _compare_value("text/plain", texts[0], texts[1], rules, normalizer, "error")
    ignored = True
    for mime, value in golden.data.items():
        if _is_ignored_mime(mime, rules):
            continue
        if mime not in run.data:
            return Outcome(f"{mime}: missing")
        outcome = _compare_value(mime, value, run.data[mime], rules, normalizer, mime)
        if outcome.rule is not None:
            return outcome
        ignored &= outcome.is_ignored
    return Outcome(is_ignored=ignored)


def _compare_value(
    mime: str, golden: Any, run: Any, rules: Comparison, normalizer: text.Normalizer, name: str
) -> Outcome:
    if rules.is_exact or _is_binary(mime):
        # In Python, 1 equals True and 1.0. Their texts differ.
        texts = [json.dumps(value, sort_keys=True) if is_json(mime) else value for value in (golden, run)]
        # Base64 is split into lines at different lengths.
        texts = ["".join(value.split()) for value in texts] if mime.startswith("image/") else texts
        return Outcome(None if texts[0] == texts[1] else f"{name}: bytes", is_ignored=golden == "")
    if mime in images.FORMATS:
        try:
            found = images.compare(golden, run, mime)
        except images.ImageInvalid as error:
            return Outcome(f"{name}: {error}", detail=("image", "image"))
        if found.worst <= rules.image_tolerance:
            return Outcome()
        return Outcome(f"{name}: imageTolerance {rules.image_tolerance}", detail=("image", found.describe()))
    if is_json(mime):
        if not text.json_equal(golden, run, rules.float_tolerance, normalizer):
            return Outcome(f"{name}: value")
        return Outcome(is_ignored=text.json_is_replaced(golden, normalizer))
    if mime == "image/svg+xml":
        golden, run = text.SVG_VARYING.sub("", golden), text.SVG_VARYING.sub("", run)
    left, right = normalizer.normalize(golden), normalizer.normalize(run)
    if not text.texts_equal(left.text, right.text, rules.float_tolerance):
        return Outcome(f"{name}: text", detail=(left.text, right.text))
    return Outcome(is_ignored=left.is_replaced or right.is_replaced or not left.text.strip())


def _is_binary(mime: str) -> bool:
    """Returns whether the value is base64 that the runner does not decode. Rules for text would change its bytes."""
    is_text = mime.startswith("text/") or mime.endswith(("+xml", "/xml", "javascript")) or is_json(mime)
    return not is_text and mime not in images.FORMATS


def _noise(golden: Output, run: Output, rules: Comparison) -> str | None:
    """Names the smallest relaxation that would make two outputs equal."""
    if rules.is_exact:
        relaxed = {"strategy 'normalized'": Comparison()}
    else:
        relaxed = {
            f"ignore '{name}'": dataclasses.replace(rules, ignore=rules.ignore | {name})
            for name in NORMALIZERS
            if name not in rules.ignore
        }
        relaxed["ten times the tolerance"] = dataclasses.replace(
            rules, float_tolerance=10 * rules.float_tolerance, image_tolerance=10 * rules.image_tolerance
        )
    for name, comparison in relaxed.items():
        try:
            if compare_output(golden, run, comparison, text.Normalizer(comparison)).rule is None:
                return name
        except PatternInvalid:
            # The pattern was fast enough for the verdict; only the class remains unknown.
            continue
    return None


def package_drift(golden: dict[str, str], run: dict[str, str]) -> str | None:
    """Returns the changed packages, an empty string if there are none, `None` if either side records none."""
    if not golden or not run:
        return None
    changed = [name for name in sorted(golden.keys() | run.keys()) if golden.get(name) != run.get(name)]
    shown = [f"{name} {golden.get(name, 'absent')} -> {run.get(name, 'absent')}" for name in changed[:5]]
    more = [f"{len(changed) - 5} more"] if len(changed) > 5 else []
    return ", ".join(shown + more)


def _shown(output: Output) -> str:
    if output.kind == "stream":
        return output.text
    if output.kind == "error":
        return ": ".join(output.error)
    plain = output.data.get("text/plain")
    return plain if isinstance(plain, str) else ", ".join(sorted(output.data))
