"""Runs the runner as a process beside a supervisor with a real kernel, as in the Pod of a validation."""

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import nbformat.v4 as nb

RUNNER = Path(__file__).resolve().parent.parent
COMMIT = "c" * 40
GOLDEN_COMMIT = "d" * 40


@dataclass
class Ended:
    """The traces of a run: exit codes, report, log, and the result in the frame of the log."""

    code: int
    supervisor_code: int
    report: dict[str, Any]
    log: str
    errors: str
    result: dict[str, Any] | None
    link: Path

    @property
    def verdict(self) -> tuple[str, str | None, int | None]:
        return self.report["outcome"], self.report.get("reason"), self.report.get("cell")


def cell(source: str, tags: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return dict(nb.new_code_cell(source, metadata={"tags": list(tags)} if tags else {}, **more))


def document(cells: list[Any], **metadata: Any) -> dict[str, Any]:
    made = [cell(item) if isinstance(item, str) else item for item in cells]
    return dict(nb.new_notebook(cells=made, metadata=metadata))


def settings(**changed: Any) -> dict[str, Any]:
    checks = {"failOnStderr": False, "failOnWarnings": False, "allowSkipped": True}
    identity = {"uid": "u-1", "attempt": 1, "commit": COMMIT, "image": "registry/image@sha256:1"}
    return identity | {"checks": checks} | changed


def run(
    directory: Path,
    notebook: dict[str, Any] | bytes,
    golden: dict[str, Any] | bytes | None = None,
    source: dict[str, Any] | None = None,
    secrets: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    **changed: Any,
) -> Ended:
    """Runs a notebook. `source` replaces keys of the record that `step fetch` writes."""
    inputs, link, mounted = (directory / name for name in ("inputs", "link", "secrets"))
    for path in (inputs, link, mounted / "one"):
        path.mkdir(parents=True)
    record: dict[str, Any] = {}
    for name, content, commit in (("notebook", notebook, COMMIT), ("golden", golden, GOLDEN_COMMIT)):
        if content is None:
            continue
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (inputs / f"{name}.ipynb").write_bytes(data)
        key = "goldenCommit" if name == "golden" else "commit"
        record |= {key: commit, f"{name}Sha256": hashlib.sha256(data).hexdigest()}
    (inputs / "source.json").write_text(json.dumps(record | (source or {})))
    for key, value in (secrets or {}).items():
        (mounted / "one" / key).write_text(value)
    if golden is not None:
        changed = {"goldenCommit": GOLDEN_COMMIT} | changed
    variables = {
        "RUNNER_SETTINGS": json.dumps(settings(**changed)),
        "RUNNER_INPUTS": str(inputs),
        "RUNNER_LINK": str(link),
        "RUNNER_SECRETS": str(mounted),
        "RUNNER_REPORT": str(directory / "report"),
        "IPYTHONDIR": str(directory / "ipython"),
        "REPLAY": str(inputs / "notebook.ipynb"),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(RUNNER),
    } | (environment or {})
    supervisor = subprocess.Popen(supervisor_command(directory, variables), env=variables, cwd=RUNNER)
    try:
        command = [sys.executable, "-m", "notebook_runner"]
        with subprocess.Popen(command, env=variables, cwd=RUNNER, stdout=PIPE, stderr=PIPE, text=True) as runner:
            (directory / "runner.pid").write_text(str(runner.pid))
            try:
                log, errors = runner.communicate(timeout=120)
            finally:
                runner.kill()
        (link / "stop").touch()
        code = supervisor.wait(20)
    finally:
        supervisor.kill()
    report = json.loads((directory / "report").read_bytes()) if (directory / "report").exists() else {}
    return Ended(runner.returncode, code, report, log, errors, unframed(log, report), link)


def supervisor_command(directory: Path, variables: dict[str, str]) -> list[str]:
    """Returns the command of the supervisor, and adds its variables."""
    link = directory / "link"
    program = os.environ.get("STEP_PROGRAM")
    # The supervisor of the product has no switches for tests.
    if program is None or any(name.startswith("SUPERVISOR_") for name in variables):
        return [sys.executable, "-m", "tests.supervisor", str(link)]
    home = directory / "home"
    home.mkdir()
    variables |= {"HOME": str(home), "ORCHESTRATOR_LINK": str(link), "ORCHESTRATOR_DIRECTORY": str(RUNNER)}
    replay = directory / "jupyter" / "kernels" / "replay"
    replay.mkdir(parents=True)
    argv = [sys.executable, "-m", "tests.replay_kernel", "{connection_file}"]
    (replay / "kernel.json").write_text(json.dumps({"argv": argv}))
    python = replay.parent / "python3"
    python.mkdir()
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (python / "kernel.json").write_text(json.dumps({"argv": argv}))
    variables["JUPYTER_PATH"] = str(directory / "jupyter")
    return [str(Path(program).resolve()), "kernel"]


def unframed(log: str, report: dict[str, Any]) -> dict[str, Any] | None:
    """Reads the frame as the operator does: nothing is returned unless it agrees with the report."""
    lines = log.splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith("ORCHESTRATOR-RESULT ")]
    if not starts or lines[-1] != "END":
        return None
    _, version, encoding, size, checksum = lines[starts[-1]].split(" ")
    content = base64.b64decode("".join(lines[starts[-1] + 1 : -1]), validate=True)
    assert (version, encoding) == ("1", "gzip")
    assert all(len(line) <= 4096 for line in lines)
    assert (int(size), checksum) == (len(content), hashlib.sha256(content).hexdigest())
    assert (report["bytes"], report["sha256"]) == (len(content), checksum)
    found: dict[str, Any] = json.loads(gzip.decompress(content))
    return found
