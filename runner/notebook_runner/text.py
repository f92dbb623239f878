"""Normalizes text, and compares numbers within texts and JSON."""

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from notebook_runner.settings import Comparison, PatternInvalid

# CPU seconds that all custom patterns together may use for one cell.
PATTERN_SECONDS = 1.0

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_=>78])")
# A reference to data has the pixels of an image, so only references to IDs vary.
SVG_VARYING = re.compile(r"""\s(?:id="[^"]*"|(?:xlink:)?href="#[^"]*")|url\(#[^)]*\)|<dc:date>[^<]*</dc:date>""")
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
_ZONE = r"(?:\s?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})\b)?"
# A timestamp has a time of day. A bare date is often the data of a notebook, so it is compared.
NORMALIZED = {
    "timestamps": re.compile(
        rf"\b\d{{4}}[-/]\d{{2}}[-/]\d{{2}}[T ]{_CLOCK}{_ZONE}"
        rf"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+(?:{_MONTH}\s+\d{{1,2}},?|\d{{1,2}}\s+{_MONTH})"
        rf"(?:\s+\d{{4}})?\s+{_CLOCK}{_ZONE}(?:\s+\d{{4}}\b)?"
    ),
    "durations": re.compile(
        r"(?<![\w.:])(?:\d+(?:\.\d+)?\s?(?:ns|µs|μs|us|ms|s|secs?|seconds?|min|mins|minutes?|h|hours?)"
        r"(?:/(?:it|step|epoch|loop))?\b|\d+(?:\.\d+)?\s?it/s\b|\d{1,4}:\d{2}(?::\d{2}(?:\.\d+)?)?\b)"
    ),
    "addresses": re.compile(r"(?<=\bat )0x[0-9a-fA-F]+\b|\b0x[0-9a-fA-F]{9,16}\b"),
    "uuids": re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    "paths": re.compile(r"(?<![\w/.:+])(?:/[\w.@+~-]+){2,}/?"),
}
TOKEN = re.compile(
    r"""(?P<blank>[ \t]+)
    |(?P<word>[^\W\d]\w*(?:[-.]\d[\w.]*)?      # a word, with its version: numpy-1.26, v1.2
    |\d+(?:[-/:.]\d+){2,}\w*)                   # a date, a time, a version, an address
    |(?P<number>(?:(?<![\w.)\]])[+-])?(?:
        (?:\d+\.\d+|\.\d+)(?:[eE][+-]?\d{1,3})?
        |\d+\.?[eE][+-]\d{1,3}
        |\d+\.?)(?!\w*\d)(?!\.\d))
    |(?P<mixed>\d[\w.]*)                        # a hash, a version, a quantity: 3a7f, 1.5rc1
    |(?P<other>.|\n)""",
    re.VERBOSE,
)
VERSION_BEFORE = re.compile(r"(?:\b(?:version|release|python)\b\W{0,3}|[=~]=\s?)$", re.IGNORECASE)


@dataclass(frozen=True)
class Normalized:
    """`is_replaced`: nothing but replacements is left, so equality of the text shows nothing."""

    text: str
    is_replaced: bool


class Normalizer:
    """Normalizes the texts of one cell. The time for custom patterns is shared by all of them."""

    def __init__(self, rules: Comparison) -> None:
        self.rules = rules
        self.seconds = PATTERN_SECONDS

    def normalize(self, text: str) -> Normalized:
        """Normalizes a text.

        # Errors
        `PatternInvalid` if a custom pattern is too slow.
        """
        text = ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        text = "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n")
        traced = _Traced(text)
        for name, pattern in NORMALIZED.items():
            if name in self.rules.ignore:
                traced.replace(pattern.finditer(traced.text), f"<{name}>")
        for custom in self.rules.patterns:
            start = time.process_time()
            if self.seconds <= 0:
                raise PatternInvalid("the patterns need more than 1 s for one cell")
            try:
                matches = custom.compiled.finditer(traced.text, timeout=self.seconds)
                traced.replace(matches, custom.replacement)
            except (TimeoutError, MemoryError, RecursionError) as error:
                raise PatternInvalid(f"pattern '{custom.text[:80]}' needs more than 1 s for a cell") from error
            self.seconds -= time.process_time() - start
        normalized = Normalized(traced.text, traced.is_replaced())
        if "order" in self.rules.ignore:
            return Normalized("\n".join(sorted(normalized.text.split("\n"))), normalized.is_replaced)
        return normalized


class _Traced:
    """A text, and for each character whether a replacement wrote it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.marks = bytes(len(text))
        self.was_replaced = False

    def replace(self, matches: Iterator[Any], replacement: str) -> None:
        texts, marks, end = [], [], 0
        for match in matches:
            begin, next_end = match.span()
            texts += [self.text[end:begin], replacement]
            marks += [self.marks[end:begin], b"\x01" * len(replacement)]
            end = next_end
        if texts:
            self.was_replaced = True
            self.text = "".join([*texts, self.text[end:]])
            self.marks = b"".join([*marks, self.marks[end:]])

    def is_replaced(self) -> bool:
        marked = zip(self.text, self.marks, strict=True)
        return self.was_replaced and all(mark or char.isspace() for char, mark in marked)


def overwritten(text: str) -> str:
    """Applies `\\r` and `\\b` as a terminal does."""
    if "\r" not in text and "\b" not in text:
        return text
    return "\n".join(_overwritten_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def _overwritten_line(line: str) -> str:
    shown: list[str] = []
    cursor = 0
    for part in re.findall(r"[\r\b]|[^\r\b]+", line):
        if part == "\r":
            cursor = 0
        elif part == "\b":
            cursor = max(0, cursor - 1)
        else:
            shown[cursor : cursor + len(part)] = part
            cursor += len(part)
    return "".join(shown)


def numbers_equal(golden: float, run: float, tolerance: float) -> bool:
    """Compares two numbers of which at least one is no integer."""
    if math.isnan(golden) or math.isnan(run):
        return math.isnan(golden) and math.isnan(run)
    if math.isinf(golden) or math.isinf(run):
        return golden == run
    return abs(golden - run) <= tolerance * max(1.0, abs(golden))


def texts_equal(golden: str, run: str, tolerance: float) -> bool:
    """Compares two normalized texts. Blanks may differ only if the text of a number has another width."""
    if golden == run:
        return True
    is_wider, is_padded = False, False
    for left, right in zip_longest_tokens(golden, run):
        if left is None or right is None:
            return False
        is_padded |= left.blank != right.blank
        if left.text == right.text:
            continue
        if not (left.is_number and right.is_number and (left.is_float or right.is_float)):
            return False
        if not numbers_equal(float(left.text), float(right.text), tolerance):
            return False
        is_wider |= len(left.text) != len(right.text)
    return is_wider or not is_padded


@dataclass(frozen=True)
class Token:
    """`is_float`: has digits after the point or an exponent. '3.' may end a sentence, so it is none."""

    blank: str
    text: str
    is_number: bool = False
    is_float: bool = False


def zip_longest_tokens(golden: str, run: str) -> Iterator[tuple[Token | None, Token | None]]:
    left, right = tokens(golden), tokens(run)
    while True:
        pair = next(left, None), next(right, None)
        if pair == (None, None):
            return
        yield pair


def tokens(text: str) -> Iterator[Token]:
    blank = ""
    for match in TOKEN.finditer(text):
        kind, value = match.lastgroup, match.group()
        if kind == "blank":
            blank = value
            continue
        is_number = kind == "number" and not VERSION_BEFORE.search(text, max(0, match.start() - 12), match.start())
        is_float = is_number and not value.lstrip("+-").rstrip(".").isdigit()
        # The value of 1e999 is infinity: every such number would be equal.
        if is_float and math.isinf(float(value)):
            is_number = is_float = False
        yield Token(blank, value, is_number, is_float)
        blank = ""


def json_equal(golden: Any, run: Any, tolerance: float, normalizer: Normalizer) -> bool:
    """Compares two JSON values: integers exactly, other numbers with the tolerance, strings as texts."""
    if isinstance(golden, dict) and isinstance(run, dict):
        return golden.keys() == run.keys() and all(
            json_equal(value, run[key], tolerance, normalizer) for key, value in golden.items()
        )
    if isinstance(golden, list) and isinstance(run, list):
        return len(golden) == len(run) and all(
            json_equal(left, right, tolerance, normalizer) for left, right in zip(golden, run, strict=True)
        )
    if isinstance(golden, str) and isinstance(run, str):
        left, right = normalizer.normalize(golden), normalizer.normalize(run)
        return texts_equal(left.text, right.text, tolerance)
    numbers = type(golden) in (int, float) and type(run) in (int, float)
    if numbers and float in (type(golden), type(run)):
        try:
            return numbers_equal(float(golden), float(run), tolerance)
        except OverflowError:
            return False
    return type(golden) is type(run) and bool(golden == run)


def json_is_replaced(value: Any, normalizer: Normalizer) -> bool:
    """Returns whether the value has strings, and all its leaves are replaced strings."""
    if isinstance(value, dict | list):
        items = list(value.values()) if isinstance(value, dict) else value
        return bool(items) and all(json_is_replaced(item, normalizer) for item in items)
    return isinstance(value, str) and normalizer.normalize(value).is_replaced
