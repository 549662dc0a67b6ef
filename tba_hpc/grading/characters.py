"""The many spellings of one character, in ASCII and LaTeX commands."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_MINUS = "\u2212\u2796\u02d7\u2043\u2010\u2011\u2012\u2013\u1806\u058a\u05be\ufe63\uff0d"
_EMOJI_STYLE = "\ufe0f"
_COMMANDS = {
    "π": r"\pi ",
    "θ": r"\theta ",
    "√": r"\sqrt",
    "∞": r"\infty ",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "÷": "/",
    "∕": "/",
    "⁄": "/",
    "±": r"\pm ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "ℝ": r"\mathbb{R}",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "°": r"^\circ ",
    "∅": r"\emptyset ",
    "′": "'",
    "’": "'",
    "٪": "%",
    "٫": ".",
    "٬": "{,}",
    "。": ".",
    "、": ",",
}
_SUPERSCRIPTS = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "⁻": "-", "⁺": "+"}
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_ROOT = re.compile(r"√\s*(\d+|[a-zA-Z])")
_GROUP_SPACE = re.compile(r"(?<=\d)[\u00a0\u2007\u2009\u202f](?=\d{3}(?!\d))")


def plain(text: str) -> str:
    """`text` with decimal digits of every script, minus signs, fractions (½), superscripts, currency and mathematical
    signs in ASCII or LaTeX; no-break and thin spaces that group digits are `{,}`, invisible characters left out."""
    if text.isascii():
        return text
    text = _GROUP_SPACE.sub("{,}", text)
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + "".join(_SUPERSCRIPTS[c] for c in run.group()) + "}", text)
    return "".join(map(_plain_character, _ROOT.sub(r"\\sqrt{\1}", text)))


@lru_cache(maxsize=4096)
def _plain_character(character: str) -> str:
    if character.isascii():
        return character
    if character in _COMMANDS:
        return _COMMANDS[character]
    if character in _MINUS:
        return "-"
    if (digit := unicodedata.decimal(character, None)) is not None:
        return str(digit)
    category = unicodedata.category(character)
    if category == "Cf":  # zero-width spaces, marks of direction, byte order marks
        return ""
    if category == "Sc":
        return "$"
    compatible = unicodedata.normalize("NFKC", character)
    if unicodedata.numeric(character, None) is not None and "⁄" in compatible:
        return f" {compatible.replace('⁄', '/')}"  # the space keeps 3½ from being 31/2
    if category == "Zs":
        return " "
    # Full-width and mathematical letters and signs; others, such as ① or Ⅷ, stay what they are.
    if len(compatible) == 1 and compatible.isascii() and not compatible.isdigit():
        return compatible
    return " " if category == "So" or character == _EMOJI_STYLE else character  # check marks, smileys
