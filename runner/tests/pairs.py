"""200 pairs of a golden notebook and an executed notebook, with the verdict that the runner must give.

Each row is: name, cells of the golden notebook, cells of the run, expected reason (`OK` for success), class, settings.
A cell is a list: its source, then its outputs. A cell that is only an output has a source of its own. Rows of `SIMPLE`
have one output; the notebooks of the others are written out. Every notebook of a row that is not about emptiness also
has a first cell with equal output, so a row shows that one difference is enough to fail.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import nbformat.v4 as nb

from tests.drawings import Plot, bomb
from tests.image_pairs import PAIRS as IMAGES

OK = None
Cells = list[Any]


def res(text: str = "", **more: Any) -> dict[str, Any]:
    """A result; keys of `more` are further MIME types, with `_` for `/` and `-`."""
    data = {"text/plain": text} if text else {}
    return dict(nb.new_output("execute_result", data | more.pop("data", {}), execution_count=1, **more))


def show(**data: Any) -> dict[str, Any]:
    """Displayed data; a key such as `text_html` is a MIME type."""
    return dict(nb.new_output("display_data", {key.replace("_", "/", 1): value for key, value in data.items()}))


def mime(kind: str, value: Any) -> dict[str, Any]:
    return dict(nb.new_output("display_data", {kind: value}))


def out(text: str) -> dict[str, Any]:
    return dict(nb.new_output("stream", name="stdout", text=text))


def err(text: str) -> dict[str, Any]:
    return dict(nb.new_output("stream", name="stderr", text=text))


def exc(name: str, text: str, trace: str = "trace") -> dict[str, Any]:
    return dict(nb.new_output("error", ename=name, evalue=text, traceback=[trace]))


def png(plot: Plot) -> dict[str, Any]:
    return mime("image/png", plot.png())


def cell(source: str, *outputs: Any, tags: str = "", identifier: str = "", executed: bool = True) -> dict[str, Any]:
    made = nb.new_code_cell(source, outputs=list(outputs), execution_count=1 if executed else None)
    made["id"] = identifier
    if tags:
        made["metadata"]["tags"] = tags.split()
    return dict(made)


def document(cells: Cells, minor: int = 5, packages: dict[str, str] | None = None) -> dict[str, Any]:
    """A notebook. Sources and IDs that a row does not give follow from the position."""
    made = []
    for place, item in enumerate(cells):
        entry = dict(item) if "cell_type" in item else cell(f"step_{place}()", item)
        entry["id"] = entry.get("id") or f"id-{place}"
        if minor < 5:
            del entry["id"]
        made.append(entry)
    metadata: dict[str, Any] = {"kernelspec": {"name": "replay", "display_name": "Replay"}}
    if packages is not None:
        metadata["orchestrator"] = {"packages": packages}
    return {"nbformat": 4, "nbformat_minor": minor, "metadata": metadata, "cells": made}


@dataclass(frozen=True)
class Pair:
    """`golden` is the file as the runner reads it. `packages` are those of the run."""

    name: str
    golden: bytes
    run: dict[str, Any]
    reason: str | None
    klass: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)

    @property
    def must_fail(self) -> bool:
        return self.reason is not None


def _encode(notebook: dict[str, Any]) -> bytes:
    return json.dumps(notebook).encode()


def comparison(**values: Any) -> dict[str, Any]:
    return {"comparison": values}


def checks(**values: bool) -> dict[str, Any]:
    return {"checks": {"failOnStderr": False, "failOnWarnings": False, "allowSkipped": True} | values}


def ignore(*names: str) -> dict[str, Any]:
    return comparison(ignore=list(names))


def pattern(text: str, replacement: str = "") -> dict[str, Any]:
    return comparison(customPatterns=[{"pattern": text, "replaceWith": replacement}])


EXACT = comparison(strategy="exact")
ANCHOR = cell("ready()", out("ready\n"), identifier="anchor")
NOISE, DRIFT, REGRESSION, UNKNOWN = "Noise", "VersionDrift", "Regression", "Unknown"
MISS = "Mismatch"
LONG = "\n".join(f"line {number}" for number in range(300))
SVG = '<svg id="{id}"><dc:date>{date}</dc:date><path id="{id}a" d="M 1.5 {y} L 2 3"/><use href="#{id}a"/></svg>'
VEGA = "application/vnd.vegalite.v5+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
TABLE = "       a\n0  {}\n1  2.00000"
FRAME = "<table><tr><td>{}</td><td>{}</td></tr></table>"

# name, golden output, output of the run, reason, class, settings
SIMPLE: list[tuple[Any, ...]] = [
    # Numbers
    ("float-equal", res("0.5"), res("0.5"), OK),
    ("float-within-tolerance", res("0.50000"), res("0.50004"), OK),
    ("float-large-within-tolerance", res("12345.6"), res("12346.1"), OK),
    ("float-exponent-within-tolerance", res("1.00000e-05"), res("1.00001e-05"), OK),
    ("float-exponent-without-point", res("1e-05"), res("2e-05"), OK),
    ("float-negative-within-tolerance", res("-0.50000"), res("-0.50004"), OK),
    ("float-and-integer", res("1"), res("1.00001"), OK),
    ("float-nan-equals-nan", res("[nan 1.0]"), res("[nan 1.00001]"), OK),
    ("float-infinite", res("inf"), res("inf"), OK),
    ("float-wider-column", res(TABLE.format("1.00000")), res(TABLE.format(" 1.000001").replace("  1", " 1")), OK),
    ("float-with-unit", res("loss 0.50000s"), res("loss 0.50003s"), OK),
    ("float-own-tolerance", res("0.50"), res("0.54"), OK, None, comparison(floatTolerance="0.1")),
    ("float-beyond-tolerance", res("0.5000"), res("0.5200"), MISS, UNKNOWN),
    ("float-beyond-tolerance-little", res("0.50000"), res("0.50040"), MISS, NOISE),
    ("float-sign", res("-0.5"), res("0.5"), MISS, UNKNOWN),
    ("float-exponent", res("1.5e-05"), res("1.5e-01"), MISS, UNKNOWN),
    ("float-nan-appears", res("0.5"), res("nan"), MISS, UNKNOWN),
    ("float-nan-disappears", res("nan"), res("0.5"), MISS, UNKNOWN),
    ("float-infinite-appears", res("1e+300"), res("inf"), MISS, UNKNOWN),
    ("float-literals-above-infinity", res("1.5e999"), res("2.5e999"), MISS, UNKNOWN),
    ("float-second-of-two", res("0.5 0.9"), res("0.5 0.8"), MISS, UNKNOWN),
    ("float-one-more", res("0.5"), res("0.5 0.5"), MISS, UNKNOWN),
    ("float-unit-changed", res("0.5V"), res("0.5A"), MISS, UNKNOWN),
    ("F18-integer-by-one", res("100000"), res("100001"), MISS, UNKNOWN),
    ("F18-integer-by-one-with-tolerance", res("10"), res("11"), MISS, UNKNOWN, comparison(floatTolerance="0.5")),
    ("F18-integer-at-end-of-sentence", out("read 100000.\n"), out("read 100001.\n"), MISS, UNKNOWN),
    ("F18-integer-with-separators", res("1,000,000"), res("1,000,001"), MISS, UNKNOWN),
    ("F18-shape", res("(100000, 3)"), res("(100001, 3)"), MISS, UNKNOWN),
    ("F18-integer-in-table", res("      n\n0  100000"), res("      n\n0  100001"), MISS, UNKNOWN),
    ("integer-leading-zeros", res("007"), res("7"), MISS, UNKNOWN),
    ("version", res("numpy 1.26.4"), res("numpy 1.26.5"), MISS, UNKNOWN),
    ("version-of-two-parts", res("Python 3.11"), res("Python 3.12"), MISS, UNKNOWN, comparison(floatTolerance="0.1")),
    ("version-after-equals", res("numpy==1.26"), res("numpy==1.27"), MISS, UNKNOWN, comparison(floatTolerance="0.1")),
    ("version-in-word", res("model-1.50"), res("model-1.51"), MISS, UNKNOWN, comparison(floatTolerance="0.1")),
    ("date", res("2025-01-01"), res("2025-01-02"), MISS, UNKNOWN),
    ("hash-of-digits-and-e", res("12e4567"), res("12e4568"), MISS, UNKNOWN),
    ("hash-like-exponent", res("1e10"), res("2e10"), MISS, UNKNOWN),
    ("address-of-network", res("10.0.0.1"), res("10.0.0.2"), MISS, UNKNOWN, comparison(floatTolerance="0.1")),
    # Text
    ("text-equal", out("done\n"), out("done\n"), OK),
    ("text-trailing-blanks", out("done  \n"), out("done\n"), OK),
    ("text-line-endings", out("a\r\nb\n"), out("a\nb\n"), OK),
    ("text-ansi", out("\x1b[31mred\x1b[0m\n"), out("red\n"), OK),
    ("text-progress-bar", out("10%\r50%\r100%\n"), out("100%\n"), OK),
    ("text-backspace", out("abX\bc\n"), out("abc\n"), OK),
    ("text-changed", out("done\n"), out("gone\n"), MISS, UNKNOWN),
    ("text-case", out("True\n"), out("true\n"), MISS, UNKNOWN),
    ("text-blank-inside", out("a b\n"), out("a  b\n"), MISS, UNKNOWN),
    ("text-indentation", out("a:\n  b\n"), out("a:\nb\n"), MISS, UNKNOWN),
    ("text-line-order", out("a\nb\n"), out("b\na\n"), MISS, NOISE),
    ("text-line-missing", out("a\nb\n"), out("a\n"), MISS, UNKNOWN),
    ("text-line-more", out("a\n"), out("a\nb\n"), MISS, UNKNOWN),
    ("text-progress-stopped", out("50%\r100%\n"), out("50%\r"), MISS, UNKNOWN),
    ("text-empty", out("a\n"), out("\n"), MISS, UNKNOWN),
    ("text-confusable-letters", out("admin\n"), out("\u0430dmin\n"), MISS, UNKNOWN),
    ("text-private-characters", out("\ue000\n"), out("\ue001\n"), MISS, UNKNOWN),
    ("F17-cut-after-50-lines", out("\n".join(LONG.split("\n")[:50])), out(LONG), MISS, UNKNOWN),
    ("F17-run-cut-after-50-lines", out(LONG), out("\n".join(LONG.split("\n")[:50])), MISS, UNKNOWN),
    ("F14-last-line-lost", out(LONG), out(LONG[: LONG.rindex("\n")]), MISS, UNKNOWN),
    ("F14-middle-line-lost", out(LONG), out(LONG.replace("line 150\n", "")), MISS, UNKNOWN),
    # Replaced values
    ("timestamp", out("2025-01-01 10:00:00 start\n"), out("2026-11-19 23:59:59 start\n"), OK),
    ("timestamp-zone", out("at 2025-01-01T10:00:00.123Z ok\n"), out("at 2026-01-01T10:00:00.456+01:00 ok\n"), OK),
    ("timestamp-of-c", out("run Thu Nov 20 10:30:00 2025 ok\n"), out("run Fri Nov 21 11:30:00 2025 ok\n"), OK),
    ("address", res("<Model at 0x7f00aa>"), res("<Model at 0x7f11bb>"), OK),
    ("duration-ignored", out("took 1.5 s\n"), out("took 2.5 s\n"), OK, None, ignore("durations")),
    ("uuid-ignored", out("id 123e4567-e89b-12d3-a456-426614174000\n"),
     out("id 123e4567-e89b-12d3-a456-426614174999\n"), OK, None, ignore("uuids")),
    ("path-ignored", out("in /home/a/x.py\n"), out("in /srv/b/y.py\n"), OK, None, ignore("paths")),
    ("order-ignored", out("a\nb\n"), out("b\na\n"), OK, None, ignore("order")),
    ("pattern", out("seed 17 ok\n"), out("seed 99 ok\n"), OK, None, pattern(r"seed \d+", "seed N")),
    ("pattern-lookbehind", out("seed: 17 ok\n"), out("seed: 99 ok\n"), OK, None, pattern(r"(?<=seed: )\d+", "N")),
    ("timestamp-with-changed-text", out("2025-01-01 10:00:00 ok\n"), out("2025-01-01 10:00:01 error\n"), MISS, UNKNOWN),
    ("timestamp-not-ignored", out("2025-01-01 10:00:00 x\n"), out("2025-01-01 10:00:01 x\n"), MISS, NOISE, ignore()),
    ("address-not-ignored", res("<Model at 0x7f00aa>"), res("<Model at 0x7f11bb>"), MISS, NOISE, ignore()),
    ("address-of-other-type", res("<Model at 0x7f00aa>"), res("<Error at 0x7f11bb>"), MISS, UNKNOWN),
    ("hexadecimal-result", res("0xff01"), res("0xff02"), MISS, UNKNOWN),
    ("duration", out("took 1.5 s\n"), out("took 2.5 s\n"), MISS, NOISE),
    ("uuid", out("id 123e4567-e89b-12d3-a456-426614174000\n"),
     out("id 123e4567-e89b-12d3-a456-426614174999\n"), MISS, NOISE),
    ("path", out("in /home/a/x.py\n"), out("in /srv/b/y.py\n"), MISS, NOISE),
    ("order-with-changed-line", out("a\nb\n"), out("b\nc\n"), MISS, UNKNOWN, ignore("order")),
    ("pattern-elsewhere", out("seed 17 ok\n"), out("seed 99 no\n"), MISS, UNKNOWN, pattern(r"seed \d+", "seed N")),
    ("pattern-with-template", out("a=1\n"), out("a=2\n"), MISS, UNKNOWN, pattern(r"(b)=\d", r"\1")),
    ("pattern-that-backtracks", out("x" * 5000 + "\n"), out("x" * 5000 + "\n"), "PatternInvalid", None,
     pattern(r"(x+x+)+y")),
    ("pattern-that-is-fuzzy", out("zq" * 50000 + "\n"), out("zq" * 50000 + "\n"), "PatternInvalid", None,
     pattern(r"(?e)(?:abcdefgh){e<=20}")),
    ("F23-noise-is-no-success", out("took 1.5 s\n"), out("took 9.5 s\n"), MISS, NOISE),
    # MIME types and JSON
    ("html-equal", res("t", data={"text/html": FRAME.format(1, 0.5)}),
     res("t", data={"text/html": FRAME.format(1, 0.500001)}), OK),
    ("html-changed", res("t", data={"text/html": FRAME.format(1, 0.5)}),
     res("t", data={"text/html": FRAME.format(2, 0.5)}), MISS, UNKNOWN),
    ("html-missing", res("t", data={"text/html": "<b>t</b>"}), res("t"), MISS, UNKNOWN),
    ("html-more", res("t"), res("t", data={"text/html": "<b>t</b>"}), OK),
    ("plain-missing", res("t", data={"text/html": "<b>t</b>"}), res(data={"text/html": "<b>t</b>"}), MISS, UNKNOWN),
    ("json-float", show(application_json={"a": [1, 0.5]}), show(application_json={"a": [1, 0.500001]}), OK),
    ("json-order-of-keys", show(application_json={"a": 1, "b": 2}), show(application_json={"b": 2, "a": 1}), OK),
    ("json-nan", show(application_json={"a": float("nan")}), show(application_json={"a": float("nan")}), OK),
    ("json-integer", show(application_json={"a": 100000}), show(application_json={"a": 100001}), MISS, UNKNOWN),
    ("json-true-and-one", show(application_json={"a": True}), show(application_json={"a": 1}), MISS, UNKNOWN),
    ("json-null", show(application_json={"a": None}), show(application_json={"a": 0}), MISS, UNKNOWN),
    ("json-key-missing", show(application_json={"a": 1, "b": 2}), show(application_json={"a": 1}), MISS, UNKNOWN),
    ("json-list-longer", show(application_json=[1]), show(application_json=[1, 2]), MISS, UNKNOWN),
    ("json-text", show(application_json={"a": "x"}), show(application_json={"a": "y"}), MISS, UNKNOWN),
    ("json-number-as-text", show(application_json={"a": 1}), show(application_json={"a": "1"}), MISS, UNKNOWN),
    ("json-of-chart", mime(VEGA, {"data": [{"y": 1}]}), mime(VEGA, {"data": [{"y": 2}]}), MISS, UNKNOWN),
    ("svg-identifiers", mime("image/svg+xml", SVG.format(id="p1", date="2025", y="4.5")),
     mime("image/svg+xml", SVG.format(id="q2", date="2026", y="4.5")), OK),
    ("svg-path", mime("image/svg+xml", SVG.format(id="p1", date="2025", y="4.5")),
     mime("image/svg+xml", SVG.format(id="p1", date="2025", y="9.5")), MISS, UNKNOWN),
    ("F17-svg-embedded-pixels", mime("image/svg+xml", '<svg><image href="data:image/png;base64,AAAA"/></svg>'),
     mime("image/svg+xml", '<svg><image href="data:image/png;base64,BBBB"/></svg>'), MISS, UNKNOWN),
    ("F17-gif-bytes-like-a-path", mime("image/gif", "+/abc/def/x"), mime("image/gif", "+/abd/deg/x"), MISS, UNKNOWN,
     ignore("paths")),
    ("F17-html-pixels-like-a-path", show(text_html="<img src='data:image/png;base64,+/abc/def/x'>"),
     show(text_html="<img src='data:image/png;base64,+/abd/deg/x'>"), MISS, UNKNOWN, ignore("paths")),
    ("gif-split-into-lines", mime("image/gif", "R0lG\nODlh"), mime("image/gif", "R0lGODlh"), OK),
    ("widget", mime(WIDGET, {"model_id": "a"}), mime(WIDGET, {"model_id": "b"}), OK),
    ("widget-becomes-text", mime(WIDGET, {"model_id": "a"}), res("b"), MISS, UNKNOWN),
    ("pdf-bytes", mime("application/pdf", "aGVsbG8="), mime("application/pdf", "aGVsbG9v"), MISS, UNKNOWN),
    ("type-ignored", mime("text/html", "<i>1</i>"), mime("text/html", "<i>2</i>"), OK, None,
     comparison(ignoreOutputTypes=["text/html"])),
    ("type-ignored-other-changes", res("1", data={"text/html": "<i>1</i>"}), res("2", data={"text/html": "<i>1</i>"}),
     MISS, UNKNOWN, comparison(ignoreOutputTypes=["text/html"])),
    ("result-becomes-display", res("1"), show(text_plain="1"), MISS, UNKNOWN),
    ("result-becomes-stream", res("1"), out("1"), MISS, UNKNOWN),
    ("stdout-becomes-stderr", out("1\n"), err("1\n"), MISS, UNKNOWN),
    # Strategy exact
    ("exact-equal", res("0.5"), res("0.5"), OK, None, EXACT),
    ("exact-json-order-of-keys", show(application_json={"a": 1, "b": 2}), show(application_json={"b": 2, "a": 1}), OK,
     None, EXACT),
    ("exact-float", res("0.50000"), res("0.50001"), MISS, NOISE, EXACT),
    ("exact-timestamp", out("2025-01-01 10:00:00\n"), out("2025-01-01 10:00:01\n"), MISS, NOISE, EXACT),
    ("exact-blanks", out("a \n"), out("a\n"), MISS, NOISE, EXACT),
    ("exact-json-one", show(application_json=[1]), show(application_json=[1.0]), MISS, NOISE, EXACT),
    ("exact-json-true", show(application_json=[True]), show(application_json=[1]), MISS, UNKNOWN, EXACT),
    ("exact-stderr", err("a\n"), err("b\n"), MISS, UNKNOWN, EXACT),
    ("exact-image", png(Plot(size=(80, 60))), png(Plot(size=(80, 60), noise=0.01, radius=1)), MISS, UNKNOWN, EXACT),
    # stderr without checks
    ("stderr-not-compared", err("a\n"), err("b\n"), OK),
]  # fmt: skip


def code(*outputs: Any, source: str = "work()", **more: Any) -> dict[str, Any]:
    return cell(source, *outputs, **more)


A, B, C = (cell(f"{name}()", res(name), identifier=name) for name in "abc")
NO_IDS = {"minor": 4}
PLOT = Plot(size=(200, 150))

# name, cells of the golden notebook, cells of the run, reason, class, settings, options of the documents
WHOLE: list[tuple[Any, ...]] = [
    # Cells
    ("cells-equal", [A, B, C], [A, B, C], OK),
    ("cells-without-ids", [A, B, C], [A, B, C], OK, None, {}, NO_IDS),
    ("cells-with-other-ids", [A, B], [dict(A, id="x"), dict(B, id="y")], OK),
    ("cells-of-golden-unordered-ids", [A, B], [dict(A, id="b"), dict(B, id="a")], MISS, UNKNOWN),
    ("cells-markdown-differs", [A, dict(nb.new_markdown_cell("one", id="m"))], [A, dict(nb.new_markdown_cell("two", id="m"))], OK),
    ("cells-counts-differ", [dict(A, execution_count=1)], [dict(A, execution_count=9)], OK),
    ("cells-blank-more", [A], [A, cell("  \n", executed=False)], OK),
    ("cells-final-newline", [cell("a()", res("a"))], [cell("a()\n", res("a"))], OK),
    ("F12-cell-missing", [A, B, C], [A, C], MISS, UNKNOWN),
    ("F12-cell-missing-without-ids", [A, B, C], [A, C], MISS, UNKNOWN, {}, NO_IDS),
    ("F12-last-cell-missing", [A, B, C], [A, B], MISS, UNKNOWN),
    ("F12-cell-lost", [A, B, C], [A, B, dict(C, execution_count=None, outputs=[])], "EvidenceLost"),
    ("F12-first-cell-lost", [A, B], [dict(A, execution_count=None, outputs=[]), B], "EvidenceLost"),
    ("F12-no-cell", [A], [], "NothingValidated"),
    ("cell-more", [A, B], [A, B, C], MISS, UNKNOWN),
    ("cell-more-first", [B, C], [A, B, C], MISS, UNKNOWN, {}, NO_IDS),
    ("cell-more-without-output", [A], [A, cell("setup()")], MISS, UNKNOWN),
    ("cells-swapped", [A, B], [B, A], MISS, UNKNOWN),
    ("cells-swapped-without-ids", [A, B], [B, A], MISS, UNKNOWN, {}, NO_IDS),
    ("cell-twice", [A, B], [A, B, dict(B, id="b2")], MISS, UNKNOWN),
    ("F17-source-changed", [A, B], [A, dict(B, source="b(1)")], MISS, UNKNOWN),
    ("F17-source-changed-without-ids", [A, B], [A, dict(B, source="b(1)")], MISS, UNKNOWN, {}, NO_IDS),
    ("F17-all-sources-changed", [A, B], [dict(A, source="x"), dict(B, source="y")], MISS, UNKNOWN),
    ("F3-golden-of-other-notebook", [A, B], [cell("p()", res("a")), cell("q()", res("b"))], MISS, UNKNOWN),
    ("output-missing", [code(res("1"), show(text_plain="2"))], [code(res("1"))], MISS, UNKNOWN),
    ("output-more", [code(res("1"))], [code(res("1"), show(text_plain="2"))], MISS, UNKNOWN),
    ("F14-all-outputs-of-a-cell-lost", [A, B], [A, dict(B, outputs=[])], MISS, UNKNOWN),
    ("F17-golden-cell-without-outputs", [A, dict(B, outputs=[])], [A, B], MISS, UNKNOWN),
    ("outputs-swapped", [code(show(text_plain="1"), show(text_plain="2"))],
     [code(show(text_plain="2"), show(text_plain="1"))], MISS, UNKNOWN),
    ("output-of-cell-in-next-cell", [cell("a()", res("1")), cell("b()")], [cell("a()"), cell("b()", res("1"))], MISS, UNKNOWN),
    ("streams-split", [code(out("a\n"), out("b\n"))], [code(out("a\nb\n"))], OK),
    ("streams-interleaved", [code(out("a\n"), err("x\n"), out("b\n"))], [code(out("a\nb\n"), err("y\n"))], OK),
    ("streams-interleaved-changed", [code(out("a\n"), err("x\n"), out("b\n"))], [code(out("b\n"), err("x\n"), out("a\n"))], MISS, NOISE),
    # Errors and tags
    ("F13-cell-failed", [A, B], [A, dict(B, outputs=[exc("ValueError", "no")])], "CellFailed"),
    ("cell-failed-as-in-golden", [code(exc("ValueError", "no"))], [code(exc("ValueError", "no"))], "CellFailed"),
    ("cell-failed-before-others", [A, B, C],
     [A, dict(B, outputs=[exc("E", "no")]), dict(C, execution_count=None, outputs=[])], "CellFailed"),
    ("cell-must-raise", [code(exc("ValueError", "no"))], [code(exc("ValueError", "no"), tags="raises-exception")], OK),
    ("cell-must-raise-trace-differs", [code(exc("E", "no", "a"))], [code(exc("E", "no", "b"), tags="raises-exception")], OK),
    ("cell-must-raise-other-text", [code(exc("E", "no"))], [code(exc("E", "yes"), tags="raises-exception")], MISS, UNKNOWN),
    ("cell-must-raise-other-error", [code(exc("E", "no"))], [code(exc("F", "no"), tags="raises-exception")], MISS, UNKNOWN),
    ("cell-must-raise-and-did-not", [code(res("1"))], [code(res("1"), tags="raises-exception")], "CellFailed"),
    ("output-ignored", [A, code(res("1"))], [A, code(res("2"), tags="nbval-ignore-output")], OK),
    ("F20-tag-only-in-golden", [A, code(res("1"), tags="nbval-ignore-output")], [A, code(res("2"))], MISS, UNKNOWN),
    ("F20-skip-only-in-golden", [A, code(res("1"), tags="nbval-skip")], [A, code(res("2"))], MISS, UNKNOWN),
    ("F20-all-ignored", [code(res("1"))], [code(res("2"), tags="nbval-ignore-output")], "NothingCompared"),
    ("F20-all-skipped", [code(res("1"))], [code(tags="nbval-skip", executed=False)], "NothingValidated"),
    ("F20-all-skipped-execution", [code(res("1"))], [code(tags="skip-execution", executed=False)], "NothingValidated"),
    ("F20-output-only-in-skipped-cell", [cell("a()"), code(res("1"))],
     [cell("a()"), code(tags="nbval-skip", executed=False)], "NothingCompared"),
    ("cell-skipped", [A, code(res("1"))], [A, code(tags="nbval-skip", executed=False)], OK),
    ("F12-cell-skipped-in-production", [A, code(res("1"))], [A, code(tags="nbval-skip", executed=False)],
     "CellsSkipped", None, checks(allowSkipped=False)),
    ("skipped-cell-changed", [A, code(res("1"))], [A, code(source="other()", tags="nbval-skip", executed=False)], MISS, UNKNOWN),
    ("ignored-cell-missing-in-golden", [A], [A, code(res("1"), tags="nbval-ignore-output")], MISS, UNKNOWN),
    # Nothing left to compare
    ("F17-golden-without-outputs", [cell("a()")], [cell("a()", res("1"))], "GoldenEmpty"),
    ("F17-golden-without-outputs-like-run", [cell("a()")], [cell("a()")], "GoldenEmpty"),
    ("F17-golden-without-cells", [], [A], "GoldenEmpty"),
    ("F19-pattern-matches-everything", [code(out("1\n"))], [code(out("2\n"))], "NothingCompared", None, pattern("(?s).+", "x")),
    ("F19-pattern-removes-everything", [code(out("1\n"))], [code(out("2\n"))], "NothingCompared", None, pattern("(?s).+")),
    ("F19-patterns-together", [code(out("a 1\n"))], [code(out("b 2\n"))], "NothingCompared", None,
     comparison(customPatterns=[{"pattern": "[a-z]", "replaceWith": "x"}, {"pattern": "[0-9]", "replaceWith": "0"}])),
    ("F19-only-a-timestamp", [code(out("2025-01-01 10:00:00\n"))], [code(out("2026-01-01 10:00:00\n"))], "NothingCompared"),
    ("F19-json-only-replaced", [code(show(application_json=["a 1"]))], [code(show(application_json=["b 2"]))],
     "NothingCompared", None, pattern("(?s).+", "x")),
    ("F19-all-types-ignored", [code(out("1\n"))], [code(out("2\n"))], "NothingCompared", None,
     comparison(ignoreOutputTypes=["stream"])),
    ("F19-type-of-all-data-ignored", [code(res("1"))], [code(res("2"))], "NothingCompared", None,
     comparison(ignoreOutputTypes=["text/plain"])),
    ("only-stderr", [code(err("a\n"))], [code(err("b\n"))], "NothingCompared"),
    ("only-widgets", [code(mime(WIDGET, {"model_id": "a"}))], [code(mime(WIDGET, {"model_id": "b"}))], "NothingCompared"),
    ("only-blank-text", [code(out(" \n"))], [code(out("\n"))], "NothingCompared"),
    # Checks
    ("stderr-fails", [A, code(err("x\n"))], [A, code(err("x\n"))], "OutputOnStderr", None, checks(failOnStderr=True)),
    ("stderr-blank", [A, code(err("\n"))], [A, code(err("\n"))], OK, None, checks(failOnStderr=True)),
    ("warning-fails", [A, code()], [A, code(err("a.py:1: UserWarning: x\n"))], "WarningsFound", None, checks(failOnWarnings=True)),
    ("warning-is-allowed", [A, code()], [A, code(err("a.py:1: UserWarning: x\n"))], OK),
    ("no-warning-on-stderr", [A, code()], [A, code(err("progress\n"))], OK, None, checks(failOnWarnings=True)),
    ("mismatch-before-stderr", [A, code(res("1"))], [A, code(res("2"), err("x\n"))], MISS, UNKNOWN, checks(failOnStderr=True)),
    # Images
    ("image-equal", [A, code(png(PLOT))], [A, code(png(PLOT))], OK),
    ("image-with-little-noise", [A, code(png(PLOT))], [A, code(png(PLOT.but(noise=1e-5)))], OK),
    ("F18-image-point-missing", [A, code(png(PLOT))], [A, code(png(PLOT.but(missing=(3,))))], MISS, UNKNOWN),
    ("F18-image-small-point-missing", [A, code(png(Plot()))], [A, code(png(Plot(missing=(40,))))], MISS, NOISE),
    ("F17-image-ignored-by-others", [code(show(text_plain="<Figure>", image_png=PLOT.png()))],
     [code(show(text_plain="<Figure>", image_png=PLOT.but(seed=3).png()))], MISS, UNKNOWN),
    ("F17-image-jpeg", [A, code(mime("image/jpeg", PLOT.jpeg()))], [A, code(mime("image/jpeg", PLOT.but(count=9).jpeg()))], MISS, UNKNOWN),
    ("image-missing", [code(show(text_plain="<Figure>", image_png=PLOT.png()))], [code(show(text_plain="<Figure>"))], MISS, UNKNOWN),
    ("image-tolerance-zero", [A, code(png(PLOT))], [A, code(png(PLOT))], OK, None, comparison(imageTolerance="0")),
    ("image-size", [A, code(png(PLOT))], [A, code(png(PLOT.but(size=(201, 150))))], MISS, UNKNOWN),
    ("image-cut", [A, code(png(PLOT))], [A, code(mime("image/png", PLOT.png()[:1200]))], MISS, UNKNOWN),
    ("image-cut-in-both", [A, code(mime("image/png", PLOT.png()[:1200]))], [A, code(mime("image/png", PLOT.png()[:1200]))], MISS, UNKNOWN),
    ("image-bomb", [A, code(mime("image/png", bomb(9000, 5000)))], [A, code(mime("image/png", bomb(9000, 5000)))], MISS, UNKNOWN),
    ("image-is-text", [A, code(mime("image/png", "aGVsbG8="))], [A, code(mime("image/png", "aGVsbG8="))], MISS, UNKNOWN),
    ("image-png-as-jpeg", [A, code(mime("image/jpeg", PLOT.png()))], [A, code(mime("image/jpeg", PLOT.png()))], MISS, UNKNOWN),
]  # fmt: skip

V1, V2 = {"numpy": "1.26.4", "pandas": "2.2.0"}, {"numpy": "2.1.0", "pandas": "2.2.0"}
# name, output of the golden notebook, output of the run, packages of both, reason, class
PACKAGES: list[tuple[Any, ...]] = [
    ("F23-drift-is-no-success", res("1"), res("2"), V1, V2, MISS, DRIFT),
    ("F11-package-of-built-image-missing", res("1"), res("2"), V1, {"pandas": "2.2.0"}, MISS, DRIFT),
    ("regression", res("1"), res("2"), V1, V1, MISS, REGRESSION),
    ("noise-before-drift", out("took 1 s\n"), out("took 2 s\n"), V1, V2, MISS, NOISE),
    ("packages-of-run-unknown", res("1"), res("2"), V1, {}, MISS, UNKNOWN),
    ("drift-without-difference", res("1"), res("1"), V1, V2, OK, None),
]


def _cut(part: float) -> Callable[[bytes], bytes]:
    return lambda content: content[: int(len(content) * part)]


def _deep(content: bytes) -> bytes:
    return content.replace(b'"ready\\n"', b'"ready\\n", "x": ' + b"[" * 200 + b"]" * 200, 1)


# name, change of the golden file, reason
FILES: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("F17-golden-file-cut", _cut(0.5), "NotebookInvalid"),
    ("F17-golden-file-cut-at-end", _cut(0.999), "NotebookInvalid"),
    ("F17-golden-file-empty", _cut(0), "NotebookInvalid"),
    ("golden-compressed", lambda content: b"\x1f\x8b" + content, "NotebookInvalid"),
    ("golden-lfs-pointer", lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "NotebookInvalid"),
    ("golden-key-twice", lambda content: content.replace(b'{"nbformat": 4,', b'{"nbformat": 4, "nbformat": 4,', 1), "NotebookInvalid"),
    ("golden-too-deep", _deep, "NotebookInvalid"),
    ("golden-bomb-of-brackets", lambda _: b"[" * 1_000_000, "NotebookInvalid"),
    ("golden-other-format", lambda content: content.replace(b'"nbformat": 4', b'"nbformat": 5', 1), "NotebookInvalid"),
    ("golden-without-ids", lambda content: content.replace(b'"id": "id-1"', b'"ix": "id-1"', 1), "NotebookInvalid"),
    ("golden-ids-twice", lambda content: content.replace(b'"id": "id-1"', b'"id": "anchor"', 1), "NotebookInvalid"),
]  # fmt: skip


def _filled(row: list[Any], default: list[Any]) -> list[Any]:
    return row + default[len(row) :]


def _all() -> list[Pair]:
    found = []
    for name, golden, run, reason, *rest in SIMPLE:
        klass, settings = _filled(rest, [None, {}])
        pair = _encode(document([ANCHOR, golden])), document([ANCHOR, run])
        found.append(Pair(name, *pair, reason, klass, settings or {}))
    for name, golden, run, reason, *rest in WHOLE:
        klass, settings, options = _filled(rest, [None, {}, {}])
        found.append(
            Pair(name, _encode(document(golden, **options)), document(run, **options), reason, klass, settings or {})
        )
    for name, golden, run, recorded, packages, reason, klass in PACKAGES:
        made = _encode(document([ANCHOR, golden], packages=recorded))
        found.append(Pair(name, made, document([ANCHOR, run]), reason, klass, {}, packages))
    for name, change, reason in FILES:
        plain = document([ANCHOR, res("1")])
        found.append(Pair(name, change(_encode(plain)), plain, reason))
    return found


PAIRS = _all()
assert len({pair.name for pair in PAIRS}) == len(PAIRS)
assert len(IMAGES) >= 40
