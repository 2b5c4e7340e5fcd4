"""The numbers of a line of text, and what they are called."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_LONGEST_NUMBER, _LONGEST_GAP = 80, 120  # characters, of a number and of the text before one

# No expression may take more than linear time: a program can print anything.
LETTER = re.compile(r"[^\W\d_]")
_NUMBER = re.compile(  # the number, what it is out of, a unit; a digit of a name, a path or a version is none
    r"(?<![\w.\\@/-])(?<!\.\d:)(?<!\.\d\d:)([-+]?(?:(?:[1-9]\d{0,2}(?:,\d{3})++(?!\d)|\d++)(?:\.\d*+)?|\.\d++)(?:e[-+]?\d++)?"
    r"|[-+]?(?:nan|inf(?:inity)?)\b)(?:(\s*+/\s*+)(\d++)(?![\w.]))?"
    r"(?:\s?%|\s?(?:[mµun]?s|secs?|seconds|mins?|minutes|h|hours|dB|x)\b(?:/\w++)?)?"
    r"(?=[\s,;:!)\]}|│┃\"'(\[<>±]|--|\.?(?:\s|$))",
    re.IGNORECASE,
)
_NO_NUMBER = re.compile(  # dates, times, the head of a bar, addresses, places in a source file
    r"(?<![\w.])(?:\d++(?:(?<=\d{4})[-/.]\d\d?[-/.]\d\d?(?!\d)T?|:\d\d(?::\d\d)?(?:[.,]\d++)?(?![\w:])|%\||(?:\.\d++){3}(?::\d++)?)"
    r"|\w++://\S++|(?<![<>/\\-])[\w./\\<>-]++(?:(?<=\.py)|(?<=\.cc)|(?<=\.cpp)|(?<=\.rs)|(?<=\.go)):\d++"
    r"|(?<![<>()])[\w.<>()]++:[\w.<>()]++:\d++(?=\s[-|]|\]))"
)
_WRAPPED = re.compile(r"\b(?:(?:np|numpy|torch|jnp)\.)?(?:float\d*|int\d*|[Tt]ensor|[Aa]rray)\((?=[-+\d.ni])")
_SEPARATOR = re.compile(
    r"[,;|│┃\t(\[\]{}<>\"“”=：•*#]|:(?!\d)|(?<!\.\d)(?<!\.\d\d):|\)\s|\s[-–—]+\s|\s\s|(?<=\w{5})\.\s"
)
_EDGES = re.compile(r"^(?:(?![_@]*[^\W\d_])\S+\s)+|(?:\s(?:is|was|are|of|about|-))+$")
_LEADING = re.compile(r".*\b(?:at|with|after|on|of|for|in|to|and|is|the|has|a|new)\s", re.IGNORECASE)
_AFTER = re.compile(r".*[:,;|\]]\s?|\s(?:(?:at|after|for|in|on|of|the|end)\b\s?)+$")
METRIC = re.compile(  # what a number may follow without a sign between
    r"(?<![a-z])(?:(?:log|nll|train|val|valid|test)?loss(?:es)?|acc(?:uracy)?|err(?:or)?|scores?|f\d?|fb?1|auc|auroc|auprc"
    r"|bleu|rouge|ppl|perplexity|rewards?|rew|returns?|prec(?:ision)?|rec(?:all)?|m?iou|dice|m?ap|r?m?[ms][sa]p?e|rmsle|r2"
    r"|top[@-]?\d|[pr]@\d|psnr|ssim|fid|nll|bp[cbd]|elbo|kl|entropy|cost|objective|metric|fitness|[wc]er|mrr|n?dcg|corr|kappa|mcc"
    r"|likelihood|energy|regret|latency|throughput)(?![a-z])"
)
_SPLIT = r"(?:train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev)"
_IN_NAME = re.compile(rf"(?<![^\W\d_]){_SPLIT}(?![^\W\d_])", re.IGNORECASE)
_SPOKEN = re.compile(rf"(?<![\w/\\.-]){_SPLIT}(?![\w/\\'-]|\.\w)", re.IGNORECASE)
_UNSPLIT = frozenset(("lr", "learning rate", "time", "grad norm", "mem", "memory"))  # not of train or val
_TIME = re.compile(
    rf"(?:(?:{_SPLIT}|current|end of|start of|starting) )?"
    rf"(epoch|ep|step|iteration|iter|it|global step|batch|episode|round)(?: {_SPLIT})?"
)
_SPELLINGS = {"ep": "epoch", "iter": "iteration", "it": "iteration", "global step": "global_step"}
_NO_END = frozenset(  # words after which a number is no metric
    "a after an and at before by code commit cuda device during eta every exit for from gpu in info into left line"
    " localhost next node note npu on only or over pid port python rank remaining skipping status than the then to took"
    " tpu until used using v_num version versus vs warning with within worker".split()
)
TIMES = frozenset(("epoch", "step", "iteration", "global_step", "batch", "episode", "round"))


class _Label(NamedTuple):
    """What the text before a number says of it; without a name the number belongs to nothing."""

    name: str
    is_sure: bool  # more than some word before a number
    split: str  # train, val ..., said before the name
    next_split: str  # `Val Loss: 1, Accuracy: 2` goes on to speak of val, `val_loss=1 acc=2` does not
    lead: str = ""  # the cost in `Cost after epoch 3: 0.5`


@lru_cache(maxsize=4096)
def time_name(name: str) -> str:
    """Return the one spelling of a word for time, any other name as it is."""
    match = _TIME.fullmatch(plain(name))
    return _SPELLINGS.get(match[1], match[1]) if match else name


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """Return the words of a name in lower case, with one blank between."""
    return re.sub(r"[\W_]+", " ", name).strip().casefold()


def pairs_in(line: str) -> tuple[dict[str, float], str]:
    """Return the numbers of a line by their names, and the split, such as val, of which its end speaks."""
    line = _cleaned(line)
    values: dict[str, float] = {}
    start, split, lead, is_trusted = 0, "", "", False
    for match in _NUMBER.finditer(line):
        gap = line[max(start, match.start() - _LONGEST_GAP) : match.start()]
        name, is_sure, said, next_split, next_lead = _label(gap)
        split = said or split
        if lead and gap.strip() == ":":
            name, is_sure = lead, True
        if not name or not (is_sure or (is_trusted and not match[1].isdigit())):
            continue
        start, lead, is_trusted = match.end(), next_lead, True
        if match[1].isdigit() and _SPOKEN.fullmatch(name):  # `Test: [10/196]  Loss 0.5`
            split = name
            continue
        values.setdefault(named(name, split) if split else name, _value(match, name))
        split = next_split or split
    if values and not values.keys() & TIMES and (count := re.match(r"(?:\[(\d+)\]|(\d+):)\t", line)):
        values["iteration"] = float(count[1] or count[2])  # as gradient boosting counts
    return values, _last_split(line[start:]) or split


def _cleaned(line: str) -> str:
    return _NO_NUMBER.sub(";", _WRAPPED.sub("", line) if "(" in line else line)


@lru_cache(maxsize=4096)
def _label(gap: str) -> _Label:
    """Say what the text between two numbers names; programs print the same texts over and over."""
    text = gap.replace("->", ":").replace("=>", ":").rstrip(" \t|[('\"#~≈")
    has_sign = text.endswith((":", "=", "："))
    is_other = text.endswith(("==", ">=", "<=", "!=", "<", ">", ",", ";"))
    text = text.rstrip(" \t:=：'\"._")
    suffix = re.search(r"\((?:[^()]|\([^()]*\))*\)$", text)  # `loss (train): 1`
    ends = [one.end() for one in _SEPARATOR.finditer(text, 0, suffix.start() if suffix else len(text))]
    start = max((end for end in ends if text[end:].strip()), default=0)
    name = _EDGES.sub("", " ".join(text[start:].strip(" '\"-|").split()))
    tail = _LEADING.sub("", name)
    if time_name(tail) in TIMES or (not has_sign and METRIC.search(tail.lower())):
        start, name = max(start, text.rfind(tail)), tail
    split = _last_split(text[:start])
    next_split = "" if _SPOKEN.fullmatch(name) else _last_split(name)
    if time_name(name) in TIMES:
        lead = _AFTER.sub("", " ".join(text[:start].split()))
        is_lead = METRIC.search(lead.lower()) and lead.count(" ") < 5
        return _Label(time_name(name), True, split, next_split, lead if is_lead else "")
    if (
        is_other
        or not LETTER.search(name)
        or (not has_sign and (name.count(" ") > 4 or not LETTER.match(name.lstrip("_"))))
        or name.split()[-1].lower() in _NO_END
    ):
        return _Label("", False, _last_split(text), "")
    return _Label(name, has_sign or METRIC.search(name.lower()) is not None, split, next_split)


def _last_split(text: str) -> str:
    return next(reversed(_SPOKEN.findall(text)), "")


def named(name: str, split: str) -> str:
    """Return the name of a metric with the split, unless it speaks of one itself."""
    is_whole = not split or name in TIMES or name.lower() in _UNSPLIT or _IN_NAME.search(name)
    return name if is_whole else f"{split} {name}"


def _value(match: re.Match[str], name: str = "") -> float:
    """Return the number; `9905/10000` is a share, but of `3/10` epochs it is the third."""
    number, blank, total = match[1].replace(",", ""), match[2], match[3]
    is_share = blank == "/" and name not in TIMES and number.isdigit() and 0 < int(total) >= int(number)
    return float(number) / float(total) if is_share else float(number)


def numbers_in(line: str) -> list[float]:
    """Return all numbers of a line, named or not."""
    return [_value(match) for match in _NUMBER.finditer(_cleaned(line))]


def number_in(text: str, name: str = "") -> float | None:
    """Return the number that a text is, perhaps with a unit or in parentheses; `name` says what it is of."""
    match = _NUMBER.fullmatch(text[:_LONGEST_NUMBER].strip(" :()"))
    return _value(match, name) if match else None
