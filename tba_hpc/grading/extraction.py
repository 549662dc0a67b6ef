"""Where in a response its final answer stands: in the first that there is of the places a grader looks at. The time it
takes grows with the length of the response alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tba_hpc.grading.lines import first_line, last_line, without_marks
from tba_hpc.grading.remarks import without_clause

_TAG = re.compile(
    r"</?(?:answer|final|final_answer|result|solution|response|b|strong|em|i|p|br|span|div|code)\s*/?>", re.I
)
_OPEN_ANSWER = re.compile(r"<answer>", re.I)
_CLOSED_ANSWER = re.compile(r"</answer", re.I)
_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_IS = (
    r"\bis\b(?:\s+(?:as follows|(?:shown |given )?below)\s*:|(?!\s+(?:(?:indeed|also) )?(?:correct|incorrect"
    r"|reasonable|wrong|verified|confirmed|checked|consistent|valid"
    r"|below|as follows|right(?! (?:angle|triangle|isosceles)))\b))"
)
"""`answer is`, unless it says something of an answer that stands elsewhere."""
_WRAPPER = re.compile(
    rf"answer(?<=\banswer)[*_]*\s*(?::|{_IS})[*_]*[^\S\n]*:?|answer(?<=\bfinal answer)[*_]* *\n", re.I
)  # begins with letters, which is what makes the search fast
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
_END_OF_TURN = re.compile(
    r"<\|(?:im_end|eot_id|endoftext|end_of_text|eom_id|end)\|>|<｜end▁of▁sentence｜>|</s>|<eos>|<end_of_turn>"
)
_END_TOKEN = re.compile(r"(?:<\|\w{1,40}\|>|</s>|<eos>|<pad>|<end_of_turn>)\Z")
_LONGEST_END_TOKEN = 44  # characters
_SENTENCE_END = re.compile(r"[.!?](?=[*_]*(?:\s|$))|\n")
_MARK = re.compile("#{4,}")
_ANNOUNCED = re.compile(
    r"(?:[^\w$\\<#]|_)*(?:the\s+)?(?:final\s+)?answer[*_]*(?:[^\S\n]*(?::|\bis\b)[*_]*[^\S\n]*:?|[^\S\n]*\n)", re.I
)
_TITLE = re.compile(
    r"(?:[^\w\n$\\<#(+-]|_)*"
    r"(?:\(?(?:\d{1,2}|[a-z]|[ivx]{2,4})[.)][*_ \t]+(?=[^\n]*[^\s.!?][^\S\n]*$)(?=[^\W\d_]))?"
    r"(?!(?:minus|negative)\b)[^\W\d_]{2,}(?=[\s:.,*_]|$)",
    re.I | re.M,
)
"""Words, perhaps behind a picture, or behind the number of a step, which is no sentence."""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere an answer may stand."""

    where: str
    """In words: `behind ####`."""
    find: Callable[[str], str | None]
    """What stands there in a text, empty if that cannot be made out; None if there is no such place."""


def locate(response: str, places: Sequence[Place]) -> tuple[Place, str] | None:
    """The first of `places` that there is in what a response says, and what stands there; None without any."""
    said = spoken(response)
    for place in places:
        if (found := place.find(said)) is not None:
            return place, found
    return None


def spoken(response: str) -> str:
    """What is said after thinking: text up to the last `</think>`, from an open `<think>` on, and behind a token that
    ends a turn is left out."""
    response = _END_OF_TURN.split(response, maxsplit=1)[0]
    end = response.rfind("</think>")
    said = response if end < 0 else response[end + len("</think>") :]
    return _without_end_tokens(said.partition("<think>")[0])


def _without_end_tokens(text: str) -> str:
    """Special tokens are visible where they are not the tokenizer's own end of a sequence."""
    text = text.rstrip()
    while match := _END_TOKEN.search(text, max(len(text) - _LONGEST_END_TOKEN, 0)):
        text = text[: match.start()].rstrip()
    return text


def without_tags(text: str) -> str:
    return _TAG.sub(" ", text)


def last_marked(text: str) -> str | None:
    """The line behind the last `####`, or the next one where that is blank; below a heading that is no more than
    `Answer:` the last box, or else the next line; None without any. Other headings are passed over: lines that begin
    with a word, or with the number of a step and a word, and are not the last."""
    text = text.rstrip()
    for mark in reversed(list(_MARK.finditer(text))):
        if announced := _ANNOUNCED.match(text, mark.end()):
            return _below(text[announced.end() - announced[0].endswith("\n") :])
        if not (_TITLE.match(text, mark.end()) and text.find("\n", mark.end()) >= 0):
            return first_line(text[mark.end() :])
    return None


def last_tagged(text: str) -> str | None:
    """What the last `<answer>` holds, if it is not closed all that follows; None without any."""
    behind = _behind_last(_OPEN_ANSWER, text)
    return None if behind is None else without_marks(_CLOSED_ANSWER.split(behind, maxsplit=1)[0])


def last_box(text: str) -> str | None:
    r"""What the last `\\boxed{…}` (or `\\fbox`) that is in no other one holds; empty if it is not closed; None without
    any. Braces are balanced; escaped ones are text. Where there is none with braces, `\\boxed 2` is one, too."""
    open_braces: list[int | None] = []  # of a box, where its content starts
    content, end = None, -1
    for match in _BOX_OR_BRACE.finditer(text):
        token = match.group()
        if token == "{":
            open_braces.append(None)
        elif token[-1] == "{" and len(token) > 2:
            open_braces.append(match.end())
        elif token == "}" and open_braces and (start := open_braces.pop()) is not None:
            # What closes later holds or follows what has closed before.
            content, end = text[start : match.start()], match.end()
    if any(start is not None and start > end for start in open_braces):
        return ""
    if content is None and (bare := _BARE_BOX.findall(text)):
        return str(bare[-1])
    return None if content is None else _without_braces(content)


def _below(announcement: str) -> str:
    """The answer that stands in the same line; or else in the last box below, or in the next line."""
    box = None if announcement.partition("\n")[0].strip(" *_:") else last_box(announcement)
    return first_line(announcement) if box is None else box


def _without_braces(content: str) -> str:
    """`{18}` is 18; braces in it that close earlier are kept."""
    inner = content.strip()[1:-1]
    return inner if content.strip() == f"{{{inner}}}" and not re.search(r"[{}]", inner) else content


def last_announced(text: str) -> str | None:
    """The rest of the sentence behind the last `answer is` or `Answer:`, without reasons; None without any."""
    behind = _behind_last(_WRAPPER, text)
    return None if behind is None else without_clause(_SENTENCE_END.split(first_line(behind), maxsplit=1)[0])


def _behind_last(pattern: re.Pattern[str], text: str) -> str | None:
    """What follows the last match; None without any."""
    ends = [match.end() for match in pattern.finditer(text)]
    return text[ends[-1] :] if ends else None


MARKED = Place("behind ####", last_marked)
BOXED = Place("in \\boxed", last_box)
TAGGED = Place("in <answer>", last_tagged)
ANNOUNCED = Place("behind 'answer is'", last_announced)
LAST_LINE = Place("in the last line", last_line)
END = Place("at the end", str)
"""All that is said, of which the end counts."""
