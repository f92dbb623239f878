"""The report of a run, its full result as a frame in the log, and the masking of Secrets."""

import base64
import copy
import gzip
import hashlib
import html
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from notebook_runner.judge import Run, Status, Verdict
from notebook_runner.notebook import Notebook, to_nbformat
from notebook_runner.settings import Settings

# The kubelet cuts a termination message to 12 KiB divided by the number of containers, injected ones included.
MAX_REPORT = 1999
MAX_FRAME = 700 * 1024
LINE = 4096
# The operator decompresses the result, so its size is limited, too.
MAX_PLAIN = 16 * 1024 * 1024
EXCERPT = 160
# Characters of a text that a difference keeps for `orc diff`.
KEPT = 16 * 1024
MASK = "***"
# A shorter value, as "1" or "yes", is part of ordinary text everywhere.
SHORTEST_SECRET = 4


class Mask:
    """Replaces the values of Secrets, also in the forms in which programs print them."""

    def __init__(self, directory: Path) -> None:
        forms: set[str] = set()
        for folder, _, names in os.walk(directory):
            for name in names:
                forms |= _forms((Path(folder) / name).read_bytes())
        found = [form for form in forms if len(form) >= SHORTEST_SECRET]
        self.pattern = re.compile(_alternatives(found, SHORTEST_SECRET - 1)) if found else None

    def text(self, text: str) -> str:
        return self.pattern.sub(MASK, text) if self.pattern else text

    def value(self, value: Any) -> Any:
        """Masks every string, key and number of a JSON value."""
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, bool) or value is None:
            return value
        masked = self.text(str(value))
        return value if masked == str(value) else masked


def _alternatives(forms: list[str], depth: int) -> str:
    """Returns a pattern that branches by character: the lines of a large Secret are not all tried at each place."""
    if depth == 0:
        # A value that contains another one must be replaced first.
        return "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    branches: dict[str, list[str]] = {}
    for form in forms:
        branches.setdefault(form[0], []).append(form[1:])
    parts = [f"{re.escape(first)}(?:{_alternatives(rest, depth - 1)})" for first, rest in branches.items()]
    return "|".join(parts)


def _forms(content: bytes) -> set[str]:
    text = content.decode("utf-8", "replace")
    parts = {text, text.strip(), *(line.strip() for line in text.splitlines() if len(line.strip()) >= 8)}
    encoded = {base64.b64encode(part).decode().rstrip("=") for part in (content, content.strip())}
    changes = quote, html.escape, lambda part: json.dumps(part)[1:-1], lambda part: repr(part)[1:-1]
    return parts | encoded | {change(part) for part in parts for change in changes} | {quote(text.strip(), safe="")}


def report(settings: Settings, outcome: str, values: dict[str, Any], message: str) -> bytes:
    """Returns the report, below its size limit. Only the message can be shortened."""
    identity = {"uid": settings.uid, "attempt": settings.attempt, "commit": settings.commit, "image": settings.image}
    fixed = {"v": 1, **identity, "outcome": outcome, **values}
    message = "".join(char if char.isprintable() else " " for char in message)[:800]
    while True:
        content = json.dumps({**fixed, "message": message}, ensure_ascii=False, separators=(",", ":"))
        encoded = content.encode("utf-8", "replace")
        if len(encoded) <= MAX_REPORT or not message:
            return encoded
        message = message[: max(0, len(message) - max(1, (len(encoded) - MAX_REPORT) // 4))]


def result(run: Run, verdict: Verdict, notebook: Notebook, settings: Settings, mask: Mask) -> dict[str, Any]:
    """Returns the full result. Texts are masked before they are cut: a part of a Secret would not be found."""
    matches = verdict.comparison.matches
    cells = [
        {
            "cell": item.cell.index,
            "status": item.status,
            "durationMs": item.duration_ms,
            "match": matches.get(item.cell.index),
            "error": mask.text(item.error)[:EXCERPT],
        }
        for item in run.cells
    ]
    differences = [
        {
            "cell": found.cell,
            "diffType": found.kind,
            "class": found.klass,
            "rule": mask.text(found.rule),
            "expected": mask.text(found.expected)[:KEPT],
            "actual": mask.text(found.actual)[:KEPT],
        }
        for found in verdict.comparison.differences
    ]
    full = {
        "v": 1,
        "uid": settings.uid,
        "attempt": settings.attempt,
        "commit": settings.commit,
        "goldenCommit": settings.golden_commit,
        "image": settings.image,
        "outcome": "Failed" if verdict.reason else "Succeeded",
        "reason": verdict.reason,
        "message": mask.text(verdict.message)[:KEPT],
        "counts": verdict.counts,
        "classes": verdict.comparison.classes(),
        "results": cells,
        "diffs": differences,
        "expectations": [
            {"cell": cell, "error": mask.text(error or "")[:EXCERPT]} for cell, error in verdict.expectations
        ],
        "truncated": [],
    }
    return full | {"notebook": mask.value(executed(run, notebook, settings))} if settings.store == "Full" else full


def executed(run: Run, notebook: Notebook, settings: Settings) -> dict[str, Any]:
    """Returns the executed notebook, which can become the next golden notebook."""
    document = copy.deepcopy(notebook.raw)
    recorded = {"image": settings.image, "commit": settings.commit, "packages": run.packages}
    document["metadata"]["orchestrator"] = recorded
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"execution_count": None, "outputs": []}
    for item in run.cells:
        cell = document["cells"][item.cell.index]
        cell["execution_count"] = item.execution_count
        cell["outputs"] = [to_nbformat(output, item.execution_count) for output in item.cell.outputs]
    return document


def compressed(full: dict[str, Any], limit: int) -> bytes:
    """Compresses the result. Above the limit, drops the notebook, then equal cells, then texts, and records it."""
    limit = min(limit, MAX_FRAME * 3 // 4 - 4096)
    for shorten in (None, _without_notebook, _without_equal_cells, _without_texts, _without_details):
        if shorten is not None:
            shorten(full)
        plain = json.dumps(full, separators=(",", ":")).encode()
        content = gzip.compress(plain, mtime=0)
        if len(content) <= limit and len(plain) <= MAX_PLAIN:
            break
    return content


def _without_notebook(full: dict[str, Any]) -> None:
    if full.pop("notebook", None) is not None:
        full["truncated"].append("notebook")


def _without_equal_cells(full: dict[str, Any]) -> None:
    full["results"] = [cell for cell in full["results"] if _is_remarkable(cell)]
    full["truncated"].append("equal cells")


def _is_remarkable(cell: dict[str, Any]) -> bool:
    return bool(cell["status"] != Status.SUCCEEDED or cell["match"] == "Mismatched")


def _without_texts(full: dict[str, Any]) -> None:
    for found in full["diffs"]:
        found["expected"], found["actual"] = found["expected"][:EXCERPT], found["actual"][:EXCERPT]
    full["truncated"].append("texts")


def _without_details(full: dict[str, Any]) -> None:
    full["results"], full["diffs"] = full["results"][:1], full["diffs"][:1]
    full["truncated"].append("details")


def checksum(content: bytes) -> dict[str, Any]:
    """Returns the part of the report that identifies the compressed result."""
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def frame(content: bytes) -> Iterator[str]:
    """Returns the lines of the frame around the compressed result."""
    yield f"ORCHESTRATOR-RESULT 1 gzip {len(content)} {hashlib.sha256(content).hexdigest()}"
    text = base64.b64encode(content).decode()
    yield from (text[start : start + LINE] for start in range(0, len(text), LINE))
    yield "END"
