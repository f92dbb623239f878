"""The report, the frame and the masking of Secrets."""

import base64
import gzip
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from notebook_runner import report
from notebook_runner.settings import Settings

SETTINGS = Settings("u" * 36, 3, "c" * 64, "i" * 500)
CANARY = 'pa"ss\\w<o>rd é 93'


@pytest.mark.parametrize(
    "message", ["", "short", "x" * 100_000, "é" * 5_000, "\U0001f600" * 5_000, '"\\' * 5_000, "\x00\n" * 900]
)
def test_f16_a_report_is_below_its_limit_and_complete(message: str) -> None:
    counts = dict.fromkeys(("total", "succeeded", "failed", "skipped", "notRun", "matched", "mismatched"), 2000)
    counts |= dict.fromkeys(("ignored", "compared", "expectations", "expectationsFailed"), 2_000_000)
    classes = dict.fromkeys(("Noise", "VersionDrift", "Regression", "Unknown"), 1_000_000)
    values: dict[str, Any] = {"reason": "EvidenceLost", "cell": 1999, "counts": counts, "classes": classes}
    content = report.report(SETTINGS, "Failed", values | report.checksum(b"x"), message)
    assert len(content) < 2000
    found = json.loads(content)
    assert (found["v"], found["uid"], found["attempt"], found["outcome"]) == (1, "u" * 36, 3, "Failed")
    assert found["message"].startswith(message[:5].replace("\x00", " ").replace("\n", " "))


def full(differences: int, text: str, cells: int = 3) -> dict[str, Any]:
    entries = [{"cell": place, "status": "Succeeded", "match": "Matched"} for place in range(cells)]
    diffs = [{"cell": place, "expected": text, "actual": text} for place in range(differences)]
    return {"results": entries, "diffs": diffs, "truncated": [], "notebook": {"cells": []}}


def noise(length: int) -> str:
    return base64.b64encode(random.Random(1).randbytes(length)).decode()


@pytest.mark.parametrize(
    ("result", "truncated"),
    [
        (full(1, "x"), []),
        (full(1, "x") | {"notebook": noise(3000)}, ["notebook"]),
        (full(1, noise(3000)), ["notebook", "equal cells", "texts"]),
        (full(2000, noise(100)), ["notebook", "equal cells", "texts", "details"]),
        # A result that compresses well must not be a bomb for its reader.
        (full(1, "x") | {"notebook": "x" * (report.MAX_PLAIN + 1)}, ["notebook"]),
    ],
)
def test_a_result_is_shortened_in_order(result: dict[str, Any], truncated: list[str]) -> None:
    content = report.compressed(result, 2048)
    found = json.loads(gzip.decompress(content))
    assert len(content) <= 2048
    assert found["truncated"] == truncated
    assert ("notebook" in found) == ("notebook" not in truncated)


def test_a_frame_is_at_most_700_kib() -> None:
    content = report.compressed(full(500, noise(10_000)), 700 * 1024)
    lines = list(report.frame(content))
    assert sum(len(line) + 1 for line in lines) <= 700 * 1024
    assert max(len(line) for line in lines) <= 4096


def test_a_secret_with_many_lines_is_masked_quickly(tmp_path: Path) -> None:
    lines = [f"{number:05}" + noise(40) for number in range(5_000)]
    (tmp_path / "many").write_text("\n".join(lines))
    (tmp_path / "inner").write_text(lines[7][3:20])
    start = time.process_time()
    masked = report.Mask(tmp_path).text("an ordinary text " * 100_000 + lines[7])
    assert masked.endswith("text ***")
    # Five seconds of CPU time were seen, nearly all to compile the pattern.
    assert time.process_time() - start < 30


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"before{CANARY}after",
        json.dumps(CANARY),
        repr(CANARY),
        "pa%22ss%5Cw%3Co%3Erd%20%C3%A9%2093",
        "pa&quot;ss\\w&lt;o&gt;rd é 93",
        base64.b64encode(CANARY.encode()).decode(),
        "a line of a private key",
        "1234567890",
    ],
)
def test_a_secret_is_masked_in_each_form(tmp_path: Path, text: str) -> None:
    (tmp_path / "password").write_text(CANARY + "\n")
    (tmp_path / "key").write_text("-----BEGIN-----\na line of a private key\n-----END-----\n")
    (tmp_path / "number").write_text("1234567890")
    (tmp_path / "short").write_text("yes")
    mask = report.Mask(tmp_path)
    masked = json.dumps(mask.value({"a": [text, {text: 1234567890}], "yes": True}), ensure_ascii=False)
    assert "***" in masked
    assert not any(
        secret in masked for secret in ("ss", "private", "12345", base64.b64encode(CANARY.encode()).decode()[:20])
    )
    assert '"yes": true' in masked
