"""Reads notebooks within bounds. A file that cannot be read completely is invalid, never a shorter one."""

import itertools
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat.validator import iter_validate

MAX_FILE = 50 * 1024 * 1024
MAX_CELLS = 2_000
# Deep enough for charts in JSON; far below the depth at which Python's own encoder fails.
MAX_DEPTH = 100
SKIP_TAGS = frozenset({"nbval-skip", "skip-execution"})
RAISES_TAG = "raises-exception"
IGNORE_TAG = "nbval-ignore-output"


class NotebookInvalid(Exception):
    """The file is not a notebook that can be read completely."""


@dataclass
class Output:
    """One output of a cell. `kind` is nbformat's `output_type`; `name` is the name of a stream."""

    kind: str
    name: str = ""
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    error: tuple[str, str] = ("", "")
    traceback: list[str] = field(default_factory=list)


@dataclass
class Cell:
    """A code cell with source or outputs. `index` counts all cells of the file, from 0."""

    index: int
    id: str | None
    source: str
    tags: frozenset[str]
    outputs: list[Output]
    was_executed: bool

    @property
    def is_skipped(self) -> bool:
        return bool(self.tags & SKIP_TAGS)


@dataclass
class Notebook:
    """`raw` is the whole document. `has_ids` is true only if the file itself has cell IDs."""

    raw: dict[str, Any]
    cells: list[Cell]
    has_ids: bool
    kernel: str | None
    language: str | None
    packages: dict[str, str]


def read_file(path: Path) -> bytes:
    """Reads a regular file of at most `MAX_FILE` bytes, without following a link.

    # Errors
    `OSError` if it cannot be opened, `NotebookInvalid` if it is not such a file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotebookInvalid(f"'{path.name}' is not a regular file")
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise NotebookInvalid(f"'{path.name}' is larger than {MAX_FILE} bytes")
    return content


def parse(content: bytes, name: str) -> Notebook:
    """Parses and validates a notebook of nbformat 3 or 4.

    # Errors
    `NotebookInvalid` names the notebook and the first problem.
    """
    raw = _load(content, name)
    major, minor = raw.get("nbformat"), raw.get("nbformat_minor", 0)
    if type(major) is not int or type(minor) is not int or major not in (3, 4):
        raise NotebookInvalid(f"{name}: nbformat must be 3 or 4, found {str(major)[:40]}")
    try:
        for problem in iter_validate(raw, version=major, version_minor=minor, relax_add_props=True):
            raise NotebookInvalid(f"{name}: not valid nbformat {major}.{minor}: {str(problem).splitlines()[0][:200]}")
        if major == 3:
            raw = dict(nbformat.convert(nbformat.from_dict(raw), 4))
        notebook = _notebook(raw, has_ids=major == 4 and minor >= 5)
    except NotebookInvalid:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # Validation is relaxed about minor versions that nbformat does not know.
        raise NotebookInvalid(f"{name}: not a valid notebook: {type(error).__name__} {error}") from error
    identifiers = [cell.id for cell in notebook.cells if cell.id is not None]
    if len(set(identifiers)) != len(identifiers):
        raise NotebookInvalid(f"{name}: two cells have the same ID")
    return notebook


def _load(content: bytes, name: str) -> dict[str, Any]:
    if len(content) > MAX_FILE:
        raise NotebookInvalid(f"{name}: larger than {MAX_FILE} bytes")
    if content.startswith(b"\x1f\x8b"):
        raise NotebookInvalid(f"{name}: compressed files are not read")
    if content.startswith(b"version https://git-lfs"):
        raise NotebookInvalid(f"{name}: a pointer of Git LFS; commit the notebook itself")
    try:
        raw = json.loads(content.decode("utf-8"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise NotebookInvalid(f"{name}: not complete JSON: {str(error)[:200]}") from error
    if not isinstance(raw, dict):
        raise NotebookInvalid(f"{name}: not a JSON object")
    _check_depth(raw, name)
    return raw


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python keeps the last of two equal keys, other readers the first: they would see different outputs.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _check_depth(raw: dict[str, Any], name: str) -> None:
    level: list[Any] = [raw]
    for _ in range(MAX_DEPTH):
        values = [value.values() if isinstance(value, dict) else value for value in level]
        level = [item for items in values for item in items if isinstance(item, dict | list)]
        if not level:
            return
    raise NotebookInvalid(f"{name}: nested deeper than {MAX_DEPTH} levels")


def _notebook(raw: dict[str, Any], has_ids: bool) -> Notebook:
    if len(raw["cells"]) > MAX_CELLS:
        raise NotebookInvalid(f"more than {MAX_CELLS} cells")
    cells = []
    for index, cell in enumerate(raw["cells"]):
        if cell["cell_type"] != "code":
            continue
        source = joined(cell["source"])
        # Jupyter does not execute a blank cell, so it can neither succeed nor be skipped.
        if source.strip() or cell["outputs"]:
            outputs = [output(item) for item in cell["outputs"]]
            tags = frozenset(str(tag) for tag in cell["metadata"].get("tags", []))
            was_executed = cell.get("execution_count") is not None
            cells.append(Cell(index, cell["id"] if has_ids else None, source, tags, outputs, was_executed))
    metadata = raw["metadata"]
    kernelspec, recorded = metadata.get("kernelspec", {}), metadata.get("orchestrator", {})
    packages = recorded.get("packages", {}) if isinstance(recorded, dict) else {}
    packages = packages if isinstance(packages, dict) else {}
    return Notebook(
        raw=raw,
        cells=cells,
        has_ids=has_ids,
        kernel=_text(kernelspec.get("name")),
        language=_text(kernelspec.get("language") or metadata.get("language_info", {}).get("name")),
        packages={str(package): str(version) for package, version in packages.items()},
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def output(item: dict[str, Any]) -> Output:
    """Converts an output of nbformat 4."""
    kind = item["output_type"]
    if kind == "stream":
        return Output(kind, name=item["name"], text=joined(item["text"]))
    if kind == "error":
        traceback = [str(line) for line in item["traceback"]]
        return Output(kind, error=(str(item["ename"]), str(item["evalue"])), traceback=traceback)
    data = {mime: value if is_json(mime) else joined(value) for mime, value in item["data"].items()}
    return Output(kind, data=data)


def coalesced(outputs: list[Output]) -> list[Output]:
    """Joins consecutive parts of a stream, as notebooks store them."""
    found: list[Output] = []
    for (kind, name), group in itertools.groupby(outputs, lambda item: (item.kind, item.name)):
        if kind == "stream":
            found.append(Output(kind, name, "".join(item.text for item in group)))
        else:
            found.extend(group)
    return found


def to_nbformat(item: Output, execution_count: int | None) -> dict[str, Any]:
    """Converts an output to nbformat 4."""
    if item.kind == "stream":
        return {"output_type": "stream", "name": item.name, "text": item.text}
    if item.kind == "error":
        name, text = item.error
        return {"output_type": "error", "ename": name, "evalue": text, "traceback": item.traceback}
    converted: dict[str, Any] = {"output_type": item.kind, "data": item.data, "metadata": {}}
    if item.kind == "execute_result":
        converted["execution_count"] = execution_count
    return converted


def is_json(mime: str) -> bool:
    return mime == "application/json" or (mime.startswith("application/") and mime.endswith("+json"))


def joined(value: Any) -> str:
    """Joins nbformat's lists of lines."""
    return "".join(value) if isinstance(value, list) else str(value)
