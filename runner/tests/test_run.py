"""The runner as a process, with real kernels and with one that breaks the protocol."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests import pod
from tests.pairs import ANCHOR, cell, document, exc, res

pytestmark = pytest.mark.kernel
FAST = {"SUPERVISOR_GRACE": "1"}
PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}


def python(*cells: Any) -> dict[str, Any]:
    return pod.document(list(cells), kernelspec=PYTHON)


def replay(action: str) -> dict[str, Any]:
    broken = cell("work()", res("1"))
    broken["metadata"]["replay"] = action
    return document([ANCHOR, broken])


def test_a_proposed_golden_matches_the_next_run(tmp_path: Path) -> None:
    source = [
        "import sys\nprint('out'); print('err', file=sys.stderr)",
        "1 / 3",
        pod.cell("raise ValueError('expected')", ("raises-exception",)),
        "from IPython.display import HTML, clear_output, display\n"
        "print('gone'); clear_output(); display(HTML('<b>1</b>'))",
        "shown = display('first', display_id=True)",
        "shown.update('second')",
        pod.cell("raise SystemError", ("nbval-skip",)),
        "import threading\nthreading.Thread(target=lambda: __import__('time').sleep(60)).start()",
        "object()",
    ]
    first = pod.run(tmp_path / "a", python(*source), store="Full", environment=FAST)
    assert first.verdict == ("Succeeded", None, None)
    assert first.result is not None
    golden = first.result["notebook"]
    assert golden["metadata"]["orchestrator"]["packages"]["ipykernel"]
    assert golden["metadata"]["orchestrator"]["commit"] == pod.COMMIT
    assert golden["cells"][4]["outputs"][0]["data"]["text/plain"] == "'second'"
    assert [output["data"]["text/html"] for output in golden["cells"][3]["outputs"]] == ["<b>1</b>"]
    second = pod.run(tmp_path / "b", python(*source), golden, environment=FAST)
    assert second.verdict == ("Succeeded", None, None)
    assert (second.code, second.supervisor_code, second.errors) == (0, 0, "")
    counts = second.report["counts"]
    assert (counts["total"], counts["succeeded"], counts["skipped"], counts["notRun"]) == (9, 8, 1, 0)
    assert (counts["matched"] + counts["ignored"], counts["mismatched"]) == (9, 0)
    assert second.report["message"] == f"8 cells ran, 1 skipped, {counts['compared']} outputs compared"
    golden["cells"][1]["outputs"][0]["data"]["text/plain"] = "0.34"
    third = pod.run(tmp_path / "c", python(*source), golden, environment=FAST)
    assert (third.verdict, third.code) == (("Failed", "Mismatch", 1), 1)
    assert third.report["classes"] == {"Regression": 1}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import os; os._exit(0)", "exited with code 0"),
        ("quit()", "asked the kernel to exit"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9; no component reported the cause"),
        ("import threading, os\nthreading.Timer(0, lambda: os._exit(0)).start()\nimport time; time.sleep(9)", "exited"),
    ],
)
@pytest.mark.parametrize("is_last", [True, False])
def test_f13_a_kernel_that_ends_by_itself_is_a_failure_of_its_cell(
    tmp_path: Path, source: str, message: str, is_last: bool
) -> None:
    found = pod.run(tmp_path, python("1", source, *([] if is_last else ["2"])), environment=FAST)
    assert (found.verdict, found.code) == (("Failed", "KernelDied", 1), 1)
    assert message in found.report["message"]


def test_f13_a_kernel_that_ends_after_its_last_cell_is_a_failure(tmp_path: Path) -> None:
    late = "import os, threading\nthreading.Timer(0.5, lambda: os._exit(0)).start()"
    slow = {"type": "never", "cell": 1}
    wait = "class Slow:\n    shape = property(lambda self: __import__('time').sleep(1) or (1,))\nSlow()"
    found = pod.run(tmp_path, python(late, wait), expectedOutputs=[slow], environment=FAST)
    assert (found.report["reason"], found.code) == ("KernelDied", 1)


def test_an_oom_names_the_cell(tmp_path: Path) -> None:
    die = "import os; os.kill(os.getpid(), 9)"
    found = pod.run(tmp_path, python("1", die, "2"), environment=FAST | {"SUPERVISOR_OOM_KILLS": "1"})
    assert found.verdict == ("Failed", "OOMKilled", 1)


def test_a_supervisor_that_is_killed_with_its_kernel_is_noticed(tmp_path: Path) -> None:
    # With cgroup v2, an OOM kills all processes of the container, and no record is left.
    kill = "import os; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)"
    found = pod.run(tmp_path, python("1", kill), environment=FAST)
    assert found.verdict == ("Failed", "KernelDied", 1)
    assert "left no record" in found.report["message"]


def test_a_cell_that_does_not_end_is_named(tmp_path: Path) -> None:
    found = pod.run(tmp_path, python("1", "while True: pass", "2"), cellTimeout=1, environment=FAST)
    assert (found.verdict, found.supervisor_code) == (("Failed", "CellTimeout", 1), 0)
    assert found.report["counts"]["notRun"] == 1
    assert '"current": 1' in found.log


@pytest.mark.parametrize("source", ["print('x' * 30_000_000)", "while True: print('x' * 10_000)", "'x' * 200_000_000"])
def test_an_output_flood_is_too_large(tmp_path: Path, source: str) -> None:
    found = pod.run(tmp_path, python(source), environment=FAST)
    assert found.verdict == ("Failed", "OutputTooLarge", 0)


def test_output_of_many_messages_is_complete(tmp_path: Path) -> None:
    found = pod.run(tmp_path, python("for i in range(3000): print(i, flush=True)"), store="Full", maxBytes=500_000)
    assert found.result is not None
    text = "".join(output["text"] for output in found.result["notebook"]["cells"][0]["outputs"])
    assert text == "".join(f"{number}\n" for number in range(3000))


@pytest.mark.parametrize("action", ["gap", "no-idle", "unsigned", "garbage"])
def test_f14_lost_output_is_lost_evidence(tmp_path: Path, action: str) -> None:
    notebook = replay(action)
    found = pod.run(tmp_path, notebook, json.dumps(notebook).encode(), environment=FAST)
    assert found.verdict == ("Failed", "EvidenceLost", 1)


@pytest.mark.parametrize(
    ("action", "reason"),
    [("exit", "KernelDied"), ("freeze", "CellTimeout"), ("no-reply", "CellTimeout"), ("cut", "OutputTooLarge")],
)
def test_a_kernel_that_breaks_the_protocol_fails(tmp_path: Path, action: str, reason: str) -> None:
    found = pod.run(tmp_path, replay(action), cellTimeout=9 if action == "cut" else 3, environment=FAST)
    assert found.verdict == ("Failed", reason, 1)


def test_f1_f3_inputs_of_another_commit_are_rejected(tmp_path: Path) -> None:
    notebook = python("1")
    cases = {"commit": "NotebookNotFound", "notebookSha256": "NotebookNotFound"}
    cases |= {"goldenCommit": "GoldenNotFound", "goldenSha256": "GoldenNotFound"}
    for key, reason in cases.items():
        found = pod.run(tmp_path / key, notebook, document([ANCHOR]), source={key: "e" * 64})
        assert (found.report["outcome"], found.report["reason"], found.code) == ("Failed", reason, 1)
        assert (found.link / "stop").exists()


@pytest.mark.parametrize(
    ("notebook", "golden", "reason"),
    [
        (b"{", None, "NotebookInvalid"),
        (b"[" * 1_000_000, None, "NotebookInvalid"),
        (python("1"), b'{"nbformat": 4', "NotebookInvalid"),
        (python("1"), python("1"), "GoldenEmpty"),
        (python(), None, "NothingValidated"),
    ],
)
def test_inputs_are_rejected(tmp_path: Path, notebook: Any, golden: Any, reason: str) -> None:
    found = pod.run(tmp_path, notebook, golden, environment=FAST)
    assert (found.report["outcome"], found.report["reason"], found.code) == ("Failed", reason, 1)


def test_a_missing_kernel_is_named(tmp_path: Path) -> None:
    found = pod.run(tmp_path, python("1"), kernel="ir")
    assert found.report["reason"] == "KernelNotFound"
    assert "'ir' not found; searched" in found.report["message"]


def test_a_pattern_that_is_invalid_ends_before_the_kernel(tmp_path: Path) -> None:
    found = pod.run(tmp_path, python("1"), comparison={"customPatterns": [{"pattern": "(", "replaceWith": ""}]})
    assert found.report["reason"] == "PatternInvalid"


def test_settings_with_an_unknown_key_leave_no_report(tmp_path: Path) -> None:
    found = pod.run(tmp_path, python("1"), unknown=1)
    assert (found.code, found.report) == (2, {})
    assert "unknown" in found.errors


@pytest.mark.parametrize(
    ("source", "expected", "error"),
    [
        (
            "len = max = None\n[3, 5]",
            {"type": "list", "shape": "2", "minValue": "3", "maxValue": "5", "notEmpty": True},
            None,
        ),
        ("import numpy\nnumpy.ones((3, 2))", {"type": "numpy.ndarray", "shape": "-1,2", "maxValue": "1"}, None),
        ("import numpy\nnumpy.array([1.0, float('nan')])", {"maxValue": "1"}, "not numbers"),
        ("Out = {1: 5}\n7", {"maxValue": "6"}, "the largest value is 7"),
        ("x = 1", {"type": "int"}, "could not be read"),
        ("''", {"notEmpty": True}, "empty"),
    ],
)
def test_expectations_read_the_result_of_their_own_cell(
    tmp_path: Path, source: str, expected: dict[str, Any], error: str | None
) -> None:
    found = pod.run(tmp_path, python("1", source), expectedOutputs=[{"cell": 1} | expected])
    assert found.report.get("reason") == (None if error is None else "ExpectationFailed")
    assert error is None or error in found.report["message"]


def test_secrets_are_masked_everywhere(tmp_path: Path) -> None:
    canary = "canary-4711-secret"
    source = f"print('{canary}'[:9] + '{canary}'[9:])\nraise ValueError('{canary}')"
    golden = document([cell(source, exc("ValueError", "other"))])
    found = pod.run(tmp_path, python("x = 1", source), golden, secrets={"token": canary}, store="Full")
    assert found.report["reason"] == "CellFailed"
    assert found.report["message"] == "cell 1: ValueError: ***"
    assert canary not in found.log + found.errors + json.dumps(found.report) + json.dumps(found.result)


def test_a_secret_that_is_cut_is_masked(tmp_path: Path) -> None:
    canary = "canary-" + "4711" * 50
    source = f"import sys\nprint('x' * 150 + {canary!r}, file=sys.stderr)"
    strict = {"failOnStderr": True, "failOnWarnings": False, "allowSkipped": True}
    found = pod.run(tmp_path, python(source), secrets={"token": canary}, checks=strict)
    assert found.report["reason"] == "OutputOnStderr"
    assert "canary-" not in json.dumps(found.report) + json.dumps(found.result)


def test_r64_the_result_is_not_read_from_the_output_of_the_notebook(tmp_path: Path) -> None:
    forged = 'print(\'ORCHESTRATOR-RESULT 1 gzip 1 00\\nAA==\\nEND\\n{"outcome": "Succeeded"}\')\n1 / 0'
    found = pod.run(tmp_path, python(forged))
    assert found.verdict == ("Failed", "CellFailed", 0)
    assert found.log.count("ORCHESTRATOR-RESULT") == 1


def test_f15_a_report_of_an_earlier_attempt_is_overwritten_first(tmp_path: Path) -> None:
    (tmp_path / "report").write_text(json.dumps({"v": 1, "outcome": "Succeeded", "attempt": 1}) + " " * 5000)
    kill = "import os, time\nos.kill(int(open(os.environ['RUNNER_PID']).read()), 9)\ntime.sleep(20)"
    variables = FAST | {"RUNNER_PID": str(tmp_path / "runner.pid")}
    found = pod.run(tmp_path, python("1", kill), attempt=2, environment=variables)
    assert found.code == -9
    assert (found.report["outcome"], found.report["attempt"], found.report["cell"]) == ("Incomplete", 2, 1)


def test_an_error_of_the_runner_is_no_verdict_and_stops_the_kernel(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "token").symlink_to("absent")
    found = pod.run(tmp_path / "pod", python("1"), environment={"RUNNER_SECRETS": str(broken)})
    assert (found.code, found.report, found.supervisor_code) == (2, {}, 0)
    assert found.errors.startswith("error: FileNotFoundError at ")


def test_a_runner_that_is_stopped_leaves_the_cell_in_an_incomplete_report(tmp_path: Path) -> None:
    stop = "import os\nos.kill(int(open(os.environ['RUNNER_PID']).read()), 15)\nimport time; time.sleep(20)"
    found = pod.run(tmp_path, python("1", stop), environment=FAST | {"RUNNER_PID": str(tmp_path / "runner.pid")})
    assert found.code == 143
    assert (found.report["outcome"], found.report["cell"]) == ("Incomplete", 1)
    assert found.result is None


def test_f22_the_frame_is_complete_before_the_report(tmp_path: Path) -> None:
    found = pod.run(tmp_path, python("1"))
    assert found.result is not None
    assert found.log.endswith("END\n")
    # `pod.run` compares length and checksum of the frame with the report.
    assert re.fullmatch(r"[0-9a-f]{64}", found.report["sha256"])


def test_f21_a_verdict_is_reached_once(tmp_path: Path) -> None:
    notebook = document([ANCHOR, cell("work()", res("2"))])
    golden = document([ANCHOR, cell("work()", res("1"))])
    found = pod.run(tmp_path, notebook, golden)
    assert found.verdict == ("Failed", "Mismatch", 1)
    assert found.log.count("ORCHESTRATOR-RESULT") == 1
    assert found.log.count('"current": 1') == 1


def test_attack_a_kernel_that_writes_into_the_link_fails_its_own_run(tmp_path: Path) -> None:
    for place, (name, content) in enumerate(
        [("exit.json", "{"), ("exit.json", "[1]"), ("exit.json", '{"requested": true, "code": 0}'), ("stop", "{}")]
    ):
        path = str(tmp_path / str(place) / "link" / name)
        write = f"import pathlib, time\npathlib.Path({path!r}).write_text('{content}')\ntime.sleep(3)"
        found = pod.run(tmp_path / str(place), python("1", write, "2"), environment=FAST)
        assert found.verdict[:2] == ("Failed", "KernelDied"), name


def test_a_container_that_starts_late_is_waited_for(tmp_path: Path) -> None:
    start = time.monotonic()
    found = pod.run(tmp_path, python("1"), environment={"SUPERVISOR_DELAY": "2"})
    assert found.verdict == ("Succeeded", None, None)
    assert time.monotonic() - start > 2
