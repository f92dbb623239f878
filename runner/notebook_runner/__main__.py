"""Runs a notebook: reads the inputs, executes, compares, and reports.

Exit code 0 means success, 1 a failure that the report explains, 2 an error of the runner itself.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from notebook_runner import compare, report
from notebook_runner.execute import Kernel, Link, execute
from notebook_runner.judge import CellRun, Run, Status, Stop, Verdict, judge
from notebook_runner.notebook import Notebook, NotebookInvalid, parse, read_file
from notebook_runner.settings import PatternInvalid, Settings, SettingsError
from notebook_runner.settings import parse as parse_settings

VARIABLES = (("INPUTS", "/inputs"), ("LINK", "/link"), ("SECRETS", "/secrets"), ("REPORT", "/dev/termination-log"))


@dataclass(frozen=True)
class Paths:
    """The directories and files that the Pod provides."""

    inputs: Path
    link: Path
    secrets: Path
    report: Path


class Rejected(Exception):
    """The inputs cannot be validated."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.stop = Stop(reason, message)


def main() -> int:
    paths = Paths(*(Path(os.environ.get(f"RUNNER_{name}", default)) for name, default in VARIABLES))
    try:
        return _main(paths)
    except Exception as error:  # noqa: BLE001
        # The message of an unexpected error may quote a Secret. Without a request to stop, the Pod would never end.
        place = traceback.extract_tb(error.__traceback__)[-1]
        print(f"error: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}", file=sys.stderr)
        with suppress(OSError):
            Link(paths.link).write("stop", {})
        return 2


def _main(paths: Paths) -> int:
    # Process 1 has no default action for this signal.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        settings = parse_settings(os.environ.get("RUNNER_SETTINGS", ""))
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        Link(paths.link).write("stop", {})
        return 2
    except PatternInvalid as error:
        # The identity is valid; only a pattern is not.
        values = json.loads(os.environ["RUNNER_SETTINGS"])
        values["comparison"].pop("customPatterns")
        settings = parse_settings(json.dumps(values))
        return Runner(settings, paths).reject(Stop("PatternInvalid", str(error)))
    return Runner(settings, paths).run()


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    # The report stays incomplete: it names the cell that was running.
    sys.exit(143)


class Runner:
    def __init__(self, settings: Settings, paths: Paths) -> None:
        self.settings, self.paths = settings, paths
        self.mask = report.Mask(paths.secrets)
        self.link = Link(paths.link)

    def run(self) -> int:
        self._write("Incomplete", {"cell": None}, "the runner started")
        self.link.hold()
        try:
            notebook, golden = self._inputs()
        except Rejected as error:
            return self.reject(error.stop)
        kernel = Kernel(self.link, self.settings.kernel or notebook.kernel)
        run = execute(notebook, self.settings, kernel, self._started)
        verdict = judge(run, golden, self.settings)
        early = kernel.stop()
        if early is not None and run.stop is None:
            # A kernel that ended after the last cell may have done so because of it.
            run.stop = early
            verdict = judge(run, golden, self.settings)
        return self._finish(run, verdict, notebook)

    def reject(self, stop: Stop) -> int:
        """Ends without an execution. The supervisor still needs the request to stop."""
        self.link.write("stop", {})
        self._write("Failed", {"reason": stop.reason, "cell": stop.cell}, stop.message)
        return 1

    def _inputs(self) -> tuple[Notebook, Notebook | None]:
        source = json.loads(self._read("source.json", "NotebookNotFound"))
        golden = None
        if self.settings.golden_commit is not None:
            content = self._read("golden.ipynb", "GoldenNotFound")
            expected = self.settings.golden_commit, hashlib.sha256(content).hexdigest()
            if expected != (source.get("goldenCommit"), source.get("goldenSha256")):
                raise Rejected("GoldenNotFound", "the golden notebook is not the file of the resolved commit")
            golden = self._parse(content, "golden notebook")
            if not compare.has_outputs(golden):
                raise Rejected("GoldenEmpty", "the golden notebook has no outputs; execute it and commit it")
        content = self._read("notebook.ipynb", "NotebookNotFound")
        expected = self.settings.commit, hashlib.sha256(content).hexdigest()
        if expected != (source.get("commit"), source.get("notebookSha256")):
            raise Rejected("NotebookNotFound", "the notebook is not the file of the resolved commit")
        return self._parse(content, "notebook"), golden

    def _read(self, name: str, reason: str) -> bytes:
        try:
            return read_file(self.paths.inputs / name)
        except OSError as error:
            raise Rejected(reason, f"'{name}' cannot be read: {error.strerror}") from error
        except NotebookInvalid as error:
            raise Rejected("NotebookInvalid", str(error)) from error

    def _parse(self, content: bytes, name: str) -> Notebook:
        try:
            return parse(content, name)
        except NotebookInvalid as error:
            raise Rejected("NotebookInvalid", str(error)) from error

    def _started(self, run: Run, item: CellRun) -> None:
        # If the runner or the node dies during the cell, the report and the log name it.
        self._write("Incomplete", {"cell": item.cell.index}, f"cell {item.cell.index} was running")
        statuses = [item.status for item in run.cells]
        skipped = statuses.count(Status.SKIPPED)
        done = statuses.count(Status.SUCCEEDED) + skipped
        progress = {"total": len(statuses), "done": done, "skipped": skipped, "current": item.cell.index}
        print(f"ORCHESTRATOR-PROGRESS {json.dumps(progress)}", flush=True)

    def _finish(self, run: Run, verdict: Verdict, notebook: Notebook) -> int:
        full = report.result(run, verdict, notebook, self.settings, self.mask)
        content = report.compressed(full, self.settings.max_bytes)
        for line in report.frame(content):
            print(line)
        sys.stdout.flush()
        values = {"reason": verdict.reason, "cell": verdict.cell, "counts": verdict.counts}
        values |= {"classes": verdict.comparison.classes(), **report.checksum(content)}
        # The report is the last action: it claims that the frame is complete.
        self._write("Failed" if verdict.reason else "Succeeded", values, verdict.message)
        return 1 if verdict.reason else 0

    def _write(self, outcome: str, values: dict[str, Any], message: str) -> None:
        content = report.report(self.settings, outcome, values, self.mask.text(message))
        # The kubelet mounts this file, so it cannot be replaced by a rename.
        descriptor = os.open(self.paths.report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with open(descriptor, "wb") as file:
            file.write(content)


if __name__ == "__main__":
    sys.exit(main())
