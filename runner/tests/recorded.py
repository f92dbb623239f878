"""Judges a pair without a kernel: the run is read from the executed notebook."""

import dataclasses
import json

from notebook_runner.judge import CellRun, Run, Status, Verdict, finish, judge
from notebook_runner.notebook import NotebookInvalid, parse
from notebook_runner.settings import parse as parse_settings
from tests import pod
from tests.pairs import Pair


def recorded(pair: Pair) -> Run:
    notebook = parse(json.dumps(pair.run).encode(), "run")
    run = Run([CellRun(cell) for cell in notebook.cells], has_ids=notebook.has_ids, packages=pair.packages)
    for item in run.cells:
        if item.cell.is_skipped:
            item.status = Status.SKIPPED
        elif item.cell.was_executed:
            item.status, item.error = finish(item.cell, Status.SUCCEEDED)
            if item.status is Status.FAILED:
                break
    return run


def judged(pair: Pair) -> tuple[str | None, str | None, Verdict | None]:
    """Returns the reason, the class of the first difference, and the whole verdict."""
    settings = parse_settings(json.dumps(pod.settings(**pair.settings)))
    try:
        golden = parse(pair.golden, "golden notebook")
    except NotebookInvalid:
        return "NotebookInvalid", None, None
    verdict = judge(recorded(pair), golden, dataclasses.replace(settings, golden_commit=pod.GOLDEN_COMMIT))
    differences = verdict.comparison.differences
    return verdict.reason, differences[0].klass if differences else None, verdict
