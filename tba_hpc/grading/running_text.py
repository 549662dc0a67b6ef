"""The last number of a text, where no place is marked as the answer's."""

from __future__ import annotations

import re
from fractions import Fraction

from tba_hpc.grading.equations import chain, has_variables
from tba_hpc.grading.quantities import multiplier, parse_quantity
from tba_hpc.grading.words import CHANGING, spoil

_WORD = re.compile(r"\S+")
_FUNCTION = re.compile(r"\W*[A-Za-z_]")
_SENTENCE_END = re.compile(r"[.!?]\s|\n")
_CLAUSE_END = re.compile(r"[,;:]\s|\b(?:or|so|then|thus|and)\b")
_ANOTHER_NUMBER = re.compile(r"\d[^\w\s=+*/^<>\\-]*\s?[,;?(&][\s,;?!(&*]*\Z|\d\s+and\s+\Z")
_RELATION = re.compile(r"(?:[<>]|\\(?:ne|le|ge|lt|gt))\s*\Z")
_DOUBT = re.compile(r"\b(?:or|either|maybe|perhaps|possibly|rather)\s+(?:\w+\s+){0,2}\W*\Z", re.IGNORECASE)
_LONGEST_CONTEXT = 300  # characters


def last_number(text: str) -> Fraction | None:
    """The value of the last word with a digit that does not begin with a letter; None if it is no number, or what
    stands around it makes it another one, or not the only one. `text` is `readable`."""
    words = list(_WORD.finditer(text))
    for i in reversed(range(len(words))):
        word = words[i].group().rpartition("=")[2]
        if not re.search(r"\d", word) or _FUNCTION.match(word.removeprefix("\\frac")):
            continue
        word = word.lstrip("(*")
        start, word = words[i].end() - len(word), word.rstrip(".,;:!?*)")
        if "/" in word and i > 0 and words[i - 1].group().isdigit():
            start, word = words[i - 1].start(), f"{words[i - 1].group()} {word}"  # 1 1/2
        behind = _SENTENCE_END.split(text[words[i].end() :][:_LONGEST_CONTEXT], maxsplit=1)[0]
        if _is_changed(text[max(start - _LONGEST_CONTEXT, 0) : start], " ".join(behind.split()[:3])):
            return None
        value = parse_quantity(word)
        return None if value is None else value * multiplier(f" {behind}")
    return None


def _is_changed(before: str, behind: str) -> bool:
    if _ANOTHER_NUMBER.search(before[-20:]) or CHANGING.search(behind):
        return True
    sentence = _SENTENCE_END.split(before)[-1]
    if sentence.rstrip().endswith("="):
        clause = _CLAUSE_END.split(sentence.rstrip(" ="))[-1]
        return any(map(has_variables, filter(_is_no_word, chain(clause))))
    return spoil(sentence) or bool(_RELATION.search(sentence[-20:]) or _DOUBT.search(sentence[-60:]))


def _is_no_word(side: str) -> bool:
    """Whether it is more than a name."""
    return not re.fullmatch(r"\W*(?:[\w']+\s+)*\W*[A-Za-z](?:_\w+)?\W*", side.strip()) or bool(re.search(r"\d", side))
