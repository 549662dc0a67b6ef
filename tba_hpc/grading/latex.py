"""LaTeX as models and people write it, in one spelling: what looks the same on paper reads the same."""

from __future__ import annotations

import re

from tba_hpc.grading.characters import plain
from tba_hpc.grading.words import matter, with_signs

LONGEST = 2000
"""Characters of an answer; a longer one is not looked at."""

_AND_OR = re.compile(r"(?:,\s?)?\\(?:text|mbox|mathrm|textrm)\s*\{\s*,?\s*(?:and|or)\s*\}")
_BARE_AND_OR = re.compile(r"(?:, ?)?(?<=[\d\s)}])(?:and|or)(?=[\s\d(\\-])")
_HALF_OF_DAY = re.compile(r"\\(?:text|mbox|mathrm|textrm)\s*\{\s*([ap])\.?\s*m\.?\s*\}", re.IGNORECASE)
_IN_BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_FONT = re.compile(
    r"\\(?:mathbf|mathit|mathsf|mathtt|boldsymbol|bm|textbf|textit|texttt|emph|underline|operatorname"
    rf"|(?:text)?color\s*\{{[^{{}}]*\}})\s*{_IN_BRACES}"
)
_COLORED = re.compile(r"\{\s*\\color\s*\{[^{}]*\}([^{}]*)\}|\\color\s*\{[^{}]*\}")
_ROW_SPACING = re.compile(r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]")
_WORDS = re.compile(r"\\(?:text|mbox|hbox|mathrm|textrm|textnormal|textsf)\s*\{([^{}]*)\}")
_ONE_LETTER = re.compile(r"\s*[a-zA-Z]\s*")
_SPACED = re.compile(r"(?:[\d})]|\\pi)(?:\s|\\[,;:! ]|~)+[a-zA-Z]\s*\Z|\\circ\}?\s*[a-zA-Z]\s*\Z")
_UNIT_LETTERS = frozenset("mgshlLNJWVAKCF")
_FUNCTION = re.compile(
    r"\s*(?:a(?:rc)?)?(?:sin|cos|tan|cot|sec|csc)h?\s*|\s*(?:log|ln|lg|exp|lim|det|gcd|lcm|max|min|mod)\s*"
)
_WORDS_AND_POWER = re.compile(_WORDS.pattern + r"(\s*\^\s*(?:\{\s*[23]\s*\}|[23]))?")
_ONLY_WORDS = re.compile(rf"\s*(?:{_WORDS.pattern})\s*")
_BARE_WORDS = re.compile(r"\s*[a-zA-Z]{3,}(?: [a-zA-Z]{2,})*\s*")
_BOLD = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])")
_DOUBLED = re.compile(r"(?<!\\)\{\s*\{([^{}]*)\}\s*\}")
_INNER_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_LAYOUT = re.compile(
    r"\\(?:left|right)\s*\.|\\(?:left|right|bigg?[lrm]?|Bigg?[lrm]?|displaystyle|textstyle|limits|quad|qquad"
    r"|tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])"
    r"|(?<!\\)\\[!,;:> ]|~"
)
_MARK = r"(?:,\s*\\!|\{,\}|\\[, ]|\\!)\s*"
_MARKED_GROUPS = re.compile(rf"(?<![\d.])\d{{1,3}}(?:{_MARK}\d{{3}})+(?!\d)")
_GROUPS_OR_BRACKET = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)|\\?[{}]|[()\[\]]")
_MATH_MODE = re.compile(r"(?<!\\)\\[()\[\]]|\\?\$")
_SIGNED_CURRENCY = re.compile(r"-\\?\$(?=[\d.])")
_UNITLESS = re.compile(r"\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})|\\degree(?![a-zA-Z])|\\?%")
_ONE = r"(?:\{([^{}]*)\}|(\d|[a-zA-Z]|\\pi(?![a-zA-Z])))"
_SHORT_FRAC = re.compile(rf"\\frac\s*{_ONE}\s*{_ONE}")
_SHORT_SQRT = re.compile(r"\\sqrt\s*(\d|[a-zA-Z]|\\pi(?![a-zA-Z]))")
_ONE_IN_BRACES = re.compile(r"([\^_])\s*\{\s*([0-9a-zA-Z])\s*\}")
_NEEDLESS_SPACE = re.compile(r"(?<![0-9a-zA-Z]) | (?![0-9a-zA-Z])")
_SYNONYMS = (
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\le(?:q|qslant)(?![a-zA-Z])|<="), r"\\le "),
    (re.compile(r"\\ge(?:q|qslant)(?![a-zA-Z])|>="), r"\\ge "),
    (re.compile(r"\\neq(?![a-zA-Z])|!="), r"\\ne "),
    (re.compile(r"\^\s*(?:\{\s*\\prime\s*\}|\\prime(?![a-zA-Z]))"), "'"),
    (re.compile(r"\\lbrack(?![a-zA-Z])"), "["),
    (re.compile(r"\\rbrack(?![a-zA-Z])"), "]"),
    (re.compile(r"(?:\\mathbb\s*(?:\{\s*R\s*\}|R)|\\R(?:eals)?)(?![a-zA-Z]|\s*[\^_])"), r"(-\\infty,\\infty)"),
    (re.compile(r"([(\[,]\s*)\+\s*(?=\\infty)"), r"\1"),
    (re.compile(r"\\varnothing(?![a-zA-Z])"), r"\\emptyset"),
    (re.compile(r"\\begin\{bmatrix\}"), r"\\begin{pmatrix}"),
    (re.compile(r"\\end\{bmatrix\}"), r"\\end{pmatrix}"),
)


def is_wording(text: str) -> bool:
    r"""Whether an answer is words, not a formula: `\text{Evelyn}`, or bare words of three letters and more."""
    words = _ONLY_WORDS.fullmatch(text)
    return bool(words and re.search(r"[^\W\d_]", words[1])) or bool(_BARE_WORDS.fullmatch(text))


def readable(text: str, *, every_word: bool = False) -> str:
    r"""`text` in ASCII and without what carries no meaning: math mode, layout, bold, inner boxes, units and remarks in
    `\text` (unless `every_word` is to stay), `\%`, degrees, currency; short forms are written out (`\frac12`,
    `\sqrt2`), "minus" is a sign. Empty if longer than `LONGEST`."""
    if len(text) > LONGEST:
        return ""
    text = _BOLD.sub(r"\2", plain(text))
    if "\\" in text or "{" in text:
        text = _COLORED.sub(r"\1", _FONT.sub(r"\1", _ROW_SPACING.sub(r"\\\\", _flat(text))))
        text = _AND_OR.sub(", ", _HALF_OF_DAY.sub(lambda half: f" {half[1].lower()}m", text))
        text = _LAYOUT.sub(" ", _without_words(text, every_word))
    text = with_signs(text)
    for pattern, replacement in _SYNONYMS:
        text = pattern.sub(replacement, text)
    text = _UNITLESS.sub(" ", _MATH_MODE.sub(" ", _SIGNED_CURRENCY.sub("-", text)))
    return _SHORT_SQRT.sub(r"\\sqrt{\1}", _SHORT_FRAC.sub(_written_out, text))


def _flat(text: str) -> str:
    """Without inner boxes, doubled braces, and marks between groups of digits that separate nothing else."""
    text = _DOUBLED.sub(r"{\1}", _INNER_BOX.sub(r"\1", text))
    return _MARKED_GROUPS.sub(lambda groups: re.sub(r"\D", "", groups.group()), text)


def normalise(text: str, *, every_word: bool = False) -> str:
    """One spelling for answers that read the same: `readable`, without spaces that mean nothing, braces around one
    character of an exponent or index, and punctuation at the end. Each comma in it separates elements: those between
    groups of digits, outside of brackets and without a space behind them, are left out."""
    text = _without_separators(_BARE_AND_OR.sub(", ", readable(text, every_word=every_word)))
    text = _ONE_IN_BRACES.sub(r"\1\2", text)
    text = _NEEDLESS_SPACE.sub("", re.sub(r"\s+", " ", text)).lstrip(" ,;:")
    return text if text.endswith("..") else text.rstrip(" .,;:")


def _without_separators(text: str) -> str:
    parts, depth, end = [], 0, 0
    for match in _GROUPS_OR_BRACKET.finditer(text):
        token = match.group()
        if token in ("(", "[", r"\{"):
            depth += 1
        elif token in (")", "]", r"\}"):
            depth = max(depth - 1, 0)
        elif depth == 0 and token not in "{}":
            parts += [text[end : match.start()], token.replace(",", "")]
            end = match.end()
    return "".join([*parts, text[end:]])


def _without_words(text: str, every_word: bool) -> str:
    """Words beside a formula that are units or remarks are left out, others stay; words alone are the answer."""
    alone = every_word or not re.search(r"[0-9a-zA-Z]", _WORDS.sub("", text))

    def replace(match: re.Match[str]) -> str:
        words = match[1]
        if alone or re.search(r"\d", words):
            return words
        power = match[2] or ""
        if _ONE_LETTER.fullmatch(words):
            before = text[max(match.start() - 8, 0) : match.start()] + words
            is_unit = words.strip() in _UNIT_LETTERS and _SPACED.search(before)
            return " " if is_unit else words.strip() + power
        if _FUNCTION.fullmatch(words):
            return rf"\{words.strip()}{power or ' '}"
        return f" {words} " if matter(words) else " "

    return (_WORDS if alone else _WORDS_AND_POWER).sub(replace, text)


def _written_out(match: re.Match[str]) -> str:
    numerator = match[1] if match[1] is not None else match[2]
    denominator = match[3] if match[3] is not None else match[4]
    return rf"\frac{{{numerator}}}{{{denominator}}}"
