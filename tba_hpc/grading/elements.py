"""Lists, sets, points and intervals: their brackets and elements. Texts are normalised."""

from __future__ import annotations

_PAIRS = {"(": ")", "[": "]"}


def brackets(text: str) -> str:
    """The ones around all of a list, an interval or a point: `(]`; none around one element, or around a set."""
    inner = text[1:-1]
    if text[:1] not in _PAIRS or text[-1:] not in (")", "]") or len(elements(text)) < 2 or not is_balanced(inner):
        return ""
    return text[0] + text[-1]


def is_balanced(text: str) -> bool:
    """Whether each bracket, of any kind, that closes has opened, and each that opens closes."""
    depth = 0
    for character in text:
        depth += _step(character)
        if depth < 0:
            return False
    return depth == 0


def elements(text: str) -> list[str]:
    """Of a list, of a set or between brackets; a text without commas is one element."""
    text = text.removeprefix(r"\{").removesuffix(r"\}")
    if text[:1] in _PAIRS and text[-1:] in (")", "]") and is_balanced(text[1:-1]):
        text = text[1:-1]
    depth, parts, start = 0, [], 0
    for i, character in enumerate(text):
        depth += _step(character)
        if character == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _step(character: str) -> int:
    return (character in "([{") - (character in ")]}")
