"""Lines of an answer, without what people write around them: marks of mathematics, code and bold, bullets."""

from __future__ import annotations

import re

_ONLY_MARKS = re.compile(
    r"\s*(?:```+\w*|~~~+|\$+|\\[\[\]()]|\*+|\\(?:begin|end)\{(?:equation|align|gather|center)\*?\}|&)?\s*"
)
_BULLET = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+(?=\S)")
_CLOSING_MARK = re.compile(r"([*_]+)([.,;:!?]*)\s*\Z")


def first_line(text: str) -> str:
    """The first that is more than an opening mark (`\\[`, a code fence). Below another line it is without a bullet. Of
    bold that began before it, as in `**Final Answer: 18**`, the second mark is left out."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if not _ONLY_MARKS.fullmatch(line):
            bullet = _BULLET.match(line) if i else None
            return _without_closing_mark(line[bullet.end() :] if bullet else line.lstrip())
    return ""


def last_line(text: str) -> str:
    """That is more than a closing mark."""
    for line in reversed(text.splitlines()):
        if not _ONLY_MARKS.fullmatch(line):
            return line.strip()
    return ""


def without_marks(text: str) -> str:
    """Without lines that are no more than marks."""
    return "\n".join(line for line in text.splitlines() if not _ONLY_MARKS.fullmatch(line))


def _without_closing_mark(line: str) -> str:
    tail = line[-20:]  # the search for a mark at the end is not to begin at each of many
    match = _CLOSING_MARK.search(tail)
    if match is None:
        return line
    rest = line[: len(line) - len(tail) + match.start()]
    return line if match[1] in rest else rest + match[2]
