"""`python -m tests.others` runs nbval and papermill on the pairs that must fail, and prints how many each lets pass.

Both tools execute the cells of the run in a kernel that replays the outputs of the run. nbval compares them with the
outputs that its file stores: those of the golden notebook. papermill compares nothing. Custom patterns of a pair are
given to nbval, too. The runner judges the same pairs.
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from notebook_runner.notebook import NotebookInvalid, parse
from tests import pod
from tests.pairs import PAIRS, Pair
from tests.recorded import judged

# Time for one pair in nbval. A kernel starts within two seconds.
SECONDS = 60
AT_ONCE = 2
GROUPS = {
    "numbers": ("F18-", "float", "integer", "version", "date", "hash", "address-of-network"),
    "images": ("image", "F18-image", "F17-image", "exact-image"),
    "cells": ("F12-", "F3-", "cell", "F17-source", "F17-all", "skipped", "ignored", "F13-"),
    "nothing compared": ("F19-", "F20-", "only-", "F17-golden"),
    "files": ("golden-",),
}


def group(pair: Pair) -> str:
    matching = [
        (len(start), name) for name, starts in GROUPS.items() for start in starts if pair.name.startswith(start)
    ]
    return max(matching)[1] if matching else "other outputs"


def file_for_nbval(pair: Pair) -> bytes:
    """The cells of the run with the stored outputs of the golden notebook."""
    try:
        parse(pair.golden, "golden notebook")
    except NotebookInvalid:
        return pair.golden
    golden = [cell for cell in json.loads(pair.golden)["cells"] if cell["cell_type"] == "code"]
    stored = copy.deepcopy(pair.run)
    for place, cell in enumerate(stored["cells"]):
        same = [found for found in golden if found["source"] == cell["source"]]
        found = same[0] if same else golden[place] if place < len(golden) else None
        if found is not None:
            golden.remove(found)
        if cell["cell_type"] == "code":
            cell["outputs"] = found["outputs"] if found else []
    return json.dumps(stored).encode()


def prepare(directory: Path, pairs: list[Pair]) -> dict[str, str]:
    spec = directory / "jupyter" / "kernels" / "replay"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "tests.replay_kernel", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Replay", "language": "replay"}))
    for pair in pairs:
        place = directory / pair.name
        place.mkdir()
        (place / "replay.json").write_text(json.dumps(pair.run))
        (place / "nbval.ipynb").write_bytes(file_for_nbval(pair))
    paths = {"JUPYTER_PATH": str(directory / "jupyter"), "PYTHONPATH": str(pod.RUNNER)}
    return dict(os.environ) | paths | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def passed_by_nbval(directory: Path, pairs: list[Pair], environment: dict[str, str]) -> dict[str, str]:
    """Returns the outcome of each pair: `passed`, `failed`, or `no end` if nbval did not end within its time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(lambda pair: _nbval(directory, pair, environment), pairs)
        return {pair.name: outcome for pair, outcome in zip(pairs, outcomes, strict=True)}


def _nbval(directory: Path, pair: Pair, environment: dict[str, str]) -> str:
    place = directory / pair.name
    report, rules = place / "report.xml", place / "rules.cfg"
    patterns = pair.settings.get("comparison", {}).get("customPatterns", [])
    sections = [
        f"[rule{number}]\nregex: {item['pattern']}\nreplace: {item['replaceWith']}\n"
        for number, item in enumerate(patterns)
    ]
    rules.write_text("\n".join(sections))
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(place), "--junitxml", str(report), "-o", "junit_family=xunit1"]
    command += ["--nbval-sanitize-with", str(rules)] if sections else []
    command.append(str(place / "nbval.ipynb"))
    try:
        # A pattern that backtracks never ends in nbval.
        subprocess.run(command, env=environment, cwd=place, timeout=SECONDS, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return "no end"
    if not report.exists():
        raise RuntimeError(f"nbval wrote no report about '{pair.name}'")
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    # pytest reports success for a notebook without cells.
    is_bad = any(case.find("failure") is not None or case.find("error") is not None for case in cases)
    return "failed" if is_bad else "passed"


def passed_by_papermill(directory: Path, pairs: list[Pair], environment: dict[str, str]) -> set[str]:
    os.environ.update(environment)
    from papermill.execute import execute_notebook

    found = set()
    for pair in pairs:
        place = directory / pair.name
        (place / "papermill.ipynb").write_text(json.dumps(_without_outputs(pair.run)))
        try:
            execute_notebook(
                place / "papermill.ipynb", None, cwd=place, kernel_name="replay", progress_bar=False, language="python"
            )
        except Exception:  # noqa: BLE001
            # Every error of the tool means that it rejects the pair.
            continue
        found.add(pair.name)
    return found


def _without_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    cleared = copy.deepcopy(notebook)
    for cell in cleared["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return cleared


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, help="only so many pairs")
    parser.add_argument("--names", action="store_true", help="print the pairs that nbval lets pass")
    arguments = parser.parse_args()
    pairs = [pair for pair in PAIRS if pair.must_fail][: arguments.first]
    ours = {pair.name for pair in pairs if judged(pair)[0] is None}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        environment = prepare(directory, pairs)
        outcomes = passed_by_nbval(directory, pairs, environment)
        papermill = passed_by_papermill(directory, pairs, environment)
    nbval = {name for name, outcome in outcomes.items() if outcome == "passed"}
    print(f"{'pairs that must fail':<22} {'all':>5} {'runner':>8} {'nbval':>8} {'papermill':>10}")
    for label in [*GROUPS, "other outputs", "all"]:
        names = {pair.name for pair in pairs if label in (group(pair), "all")}
        counts = [len(names & passed) for passed in (ours, nbval, papermill)]
        print(f"{label:<22} {len(names):>5} {counts[0]:>8} {counts[1]:>8} {counts[2]:>10}")
    if arguments.names:
        print("passed by nbval:", ", ".join(sorted(nbval)))
    endless = sorted(name for name, outcome in outcomes.items() if outcome == "no end")
    print(f"nbval did not end within {SECONDS} s for {len(endless)} pairs: {', '.join(endless)}".rstrip(": "))
    false_failures = [pair.name for pair in PAIRS if not pair.must_fail and judged(pair)[0] is not None]
    print(f"runner: {len(ours)} false successes, {len(false_failures)} false failures {false_failures or ''}".rstrip())
    return 1 if ours or len(false_failures) > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
