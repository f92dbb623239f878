"""The verdict: pure functions from the run, the comparison and the checks."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from notebook_runner import compare
from notebook_runner.compare import Match
from notebook_runner.notebook import RAISES_TAG, Cell, Notebook, Output
from notebook_runner.settings import Expectation, PatternInvalid, Settings

WARNING = re.compile(r"\w*Warning: ")


class Status(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    NOT_RUN = "NotRun"


@dataclass
class CellRun:
    """One cell of the run. `observed` answers the expectation of the cell."""

    cell: Cell
    status: Status = Status.NOT_RUN
    duration_ms: int = 0
    error: str = ""
    execution_count: int | None = None
    observed: dict[str, Any] | None = None


@dataclass(frozen=True)
class Stop:
    """The reason for which the run ended early, other than a failed cell."""

    reason: str
    message: str
    cell: int | None = None


@dataclass
class Run:
    cells: list[CellRun]
    has_ids: bool = False
    stop: Stop | None = None
    packages: dict[str, str] = field(default_factory=dict)


@dataclass
class Verdict:
    """`reason` is `None` only for success."""

    reason: str | None
    message: str
    cell: int | None
    counts: dict[str, int]
    comparison: compare.Result
    expectations: list[tuple[int, str | None]]


def finish(cell: Cell, status: Status) -> tuple[Status, str]:
    """Returns the status of a cell that the kernel executed, and the error to show."""
    errors = [output.error for output in cell.outputs if output.kind == "error"]
    failed = bool(errors) or status is Status.FAILED
    if RAISES_TAG in cell.tags:
        if failed:
            return Status.SUCCEEDED, ""
        return Status.FAILED, f"the cell has the tag '{RAISES_TAG}' and raised nothing"
    if failed:
        name, text = errors[-1] if errors else ("", "the kernel reported an error without its text")
        return Status.FAILED, f"{name}: {text}" if name else text
    return Status.SUCCEEDED, ""


def judge(run: Run, golden: Notebook | None, settings: Settings) -> Verdict:
    """Decides the outcome. If several reasons apply, the order is: infrastructure, cell, expectation,
    comparison, stderr."""
    finished = {item.cell.index for item in run.cells if item.status is Status.SUCCEEDED}
    rules = compare.Rules(settings.comparison, settings.checks.fail_on_stderr)
    result, pattern = compare.Result(), None
    if golden is not None:
        drift = compare.package_drift(golden.packages, run.packages)
        cells = [item.cell for item in run.cells]
        try:
            result = compare.compare(golden, cells, run.has_ids, finished, rules, drift)
        except PatternInvalid as error:
            pattern = str(error)
    expectations = [(item.cell, _unmet(item, run.cells)) for item in settings.expectations]
    counts = _counts(run, result, expectations)
    found = (
        _infrastructure(run)
        or _cells(run, settings)
        or _expectation(expectations)
        or _comparison(golden, result, pattern)
        or _stderr(run, settings)
    )
    if found is None:
        message = f"{counts['succeeded']} cells ran, {counts['skipped']} skipped, {counts['compared']} outputs compared"
        return Verdict(None, message, None, counts, result, expectations)
    return Verdict(found.reason, found.message, found.cell, counts, result, expectations)


def _counts(run: Run, result: compare.Result, expectations: list[tuple[int, str | None]]) -> dict[str, int]:
    statuses = [item.status for item in run.cells]
    return {
        "total": len(statuses),
        "succeeded": statuses.count(Status.SUCCEEDED),
        "failed": statuses.count(Status.FAILED),
        "skipped": statuses.count(Status.SKIPPED),
        "notRun": statuses.count(Status.NOT_RUN),
        "matched": result.count(Match.MATCHED),
        "mismatched": result.count(Match.MISMATCHED),
        "ignored": result.count(Match.IGNORED),
        "compared": result.compared,
        "expectations": len(expectations),
        "expectationsFailed": sum(error is not None for _, error in expectations),
    }


def _infrastructure(run: Run) -> Stop | None:
    if run.stop is not None:
        return run.stop
    if any(item.status is Status.FAILED for item in run.cells):
        return None
    for item in run.cells:
        if item.status is Status.NOT_RUN:
            return Stop("EvidenceLost", f"cell {item.cell.index} has no result", item.cell.index)
    return None


def _cells(run: Run, settings: Settings) -> Stop | None:
    for item in run.cells:
        if item.status is Status.FAILED:
            return Stop("CellFailed", f"cell {item.cell.index}: {item.error}", item.cell.index)
    if not any(item.status is Status.SUCCEEDED for item in run.cells):
        return Stop("NothingValidated", f"no cell was executed; {len(run.cells)} code cells were skipped")
    skipped = [item.cell.index for item in run.cells if item.status is Status.SKIPPED]
    if skipped and not settings.checks.allow_skipped:
        message = f"cell {skipped[0]} is skipped by its tag, and 'allowSkipped' is false"
        return Stop("CellsSkipped", message, skipped[0])
    return None


def _expectation(expectations: list[tuple[int, str | None]]) -> Stop | None:
    for cell, error in expectations:
        if error is not None:
            return Stop("ExpectationFailed", f"cell {cell}: {error}", cell)
    return None


def _comparison(golden: Notebook | None, result: compare.Result, pattern: str | None) -> Stop | None:
    if golden is None:
        return None
    if not compare.has_outputs(golden):
        return Stop("GoldenEmpty", "the golden notebook has no outputs; execute it and commit it")
    if pattern is not None:
        return Stop("PatternInvalid", pattern)
    if result.differences:
        first, others = result.differences[0], len(result.differences) - 1
        more = f"; {others} more differences" if others else ""
        message = f"cell {first.cell}: {first.kind} ({first.klass}), {first.rule}{more}"
        return Stop("Mismatch", message, first.cell)
    if result.compared == 0:
        message = "every output is ignored by a tag or a rule; nothing was compared with the golden notebook"
        return Stop("NothingCompared", message)
    return None


def _stderr(run: Run, settings: Settings) -> Stop | None:
    for item in run.cells:
        text = "".join(output.text for output in item.cell.outputs if _is_stderr(output))
        line = next((line for line in text.splitlines() if line.strip()), None)
        warning = next((line for line in text.splitlines() if WARNING.search(line)), None)
        if line is not None and settings.checks.fail_on_stderr:
            return Stop("OutputOnStderr", f"cell {item.cell.index}: {line}", item.cell.index)
        if warning is not None and settings.checks.fail_on_warnings:
            return Stop("WarningsFound", f"cell {item.cell.index}: {warning}", item.cell.index)
    return None


def _is_stderr(output: Output) -> bool:
    return output.kind == "stream" and output.name == "stderr"


def _unmet(expected: Expectation, cells: list[CellRun]) -> str | None:
    found = next((item for item in cells if item.cell.index == expected.cell), None)
    if found is None:
        return "the notebook has no such code cell"
    if found.status is not Status.SUCCEEDED:
        return f"the cell is {found.status}"
    return unmet(expected, found.observed)


def unmet(expected: Expectation, observed: dict[str, Any] | None) -> str | None:
    """Returns the first check that the observed result does not meet."""
    if observed is None:
        return "the result could not be read: the cell has none, or the kernel is not a Python kernel"
    if "error" in observed:
        return f"the result could not be read: {observed['error']}"
    names = (observed.get("type"), observed.get("qualified"))
    if expected.type is not None and expected.type not in names:
        return f"the type is {names[0]}, expected {expected.type}"
    if expected.shape is not None:
        shape = observed.get("shape")
        if not isinstance(shape, list) or len(shape) != len(expected.shape):
            return f"the shape is {shape}, expected {list(expected.shape)}"
        pairs = zip(expected.shape, shape, strict=True)
        if any(size not in (-1, found) for size, found in pairs):
            return f"the shape is {shape}, expected {list(expected.shape)}"
    if expected.not_empty and observed.get("size") in (0, None):
        return "the result is empty"
    return _out_of_range(expected, observed)


def _out_of_range(expected: Expectation, observed: dict[str, Any]) -> str | None:
    if expected.min_value is None and expected.max_value is None:
        return None
    least, most = observed.get("min"), observed.get("max")
    # NaN is in no range, but also compares as not smaller and not larger.
    if not isinstance(least, int | float) or not isinstance(most, int | float) or observed.get("hasNan"):
        return "the result has values that are not numbers"
    if expected.min_value is not None and not least >= expected.min_value:
        return f"the smallest value is {least}, expected at least {expected.min_value}"
    if expected.max_value is not None and not most <= expected.max_value:
        return f"the largest value is {most}, expected at most {expected.max_value}"
    return None
