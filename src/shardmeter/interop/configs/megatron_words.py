"""A shell script, or a line of one, as the words of its commands: quotes, continuations, arrays, variables, sums.

Nothing is run. A variable whose value is not in the text stays in its word as `$NAME`.
Leaves out: functions, loops and conditions (every branch is read), here-documents, command substitution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardmeter.core.record import record

_PIECE = re.compile(
    r"""(?P<blank>(?:[^\S\n]|\\\r?\n)+) | (?P<comment>(?<![^\s;|&()])\#[^\n]*) | (?P<kept>\$\(\([^\n)]*\)\)|\$\([^\n()]*\)|`[^`\n]*`) |
        (?P<break>&&|\|\||[;\n|&]) | (?P<open>\() | (?P<close>\)) | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' |
        \\(?P<escaped>.) | (?P<variable>\$\{[^}\n]*\}) | (?P<plain>[^\s"'`\\;|&()$]+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_SUM = re.compile(r"\$\(\(([\w\s$+*/%(){}-]*)\)\)")
_PRODUCT = re.compile(r"\s*(\d{1,18})\s*([*/+-])\s*(\d{1,18})\s*")
BREAK, OPEN, CLOSE = "\n", "(", ")"
_DECLARES = ("export", "declare", "local", "readonly", "-a", "-x", "-r")
DEPTH, MOST = 8, 50_000
"""How far variables are followed, and how many words, or letters of one, a command may become."""


@record
class Word:
    """One word of a command, without its quotes; `mark` where it is a line's end or a parenthesis that no quotes hold."""

    text: str
    mark: bool = False


def words(text: str) -> Iterator[Word]:
    """The words of a text and the marks between them."""
    held: list[str] = []
    for piece in _PIECE.finditer(text):
        kind, said = piece.lastgroup or "", piece.group(piece.lastgroup or 0)
        if kind in ("blank", "comment", "break", "open", "close"):
            if held:
                yield Word(text="".join(held))
                held = []
            if kind in ("break", "open", "close"):
                yield Word(text={"open": OPEN, "close": CLOSE}.get(kind, BREAK), mark=True)
        else:
            held.append(re.sub(r"\\\r?\n", " ", said) if kind == "double" else said)
    if held:
        yield Word(text="".join(held))


def commands(text: str) -> tuple[list[list[str]], dict[str, list[str]]]:
    """The commands of a text, each as its words with variables put in, and the variables."""
    variables: dict[str, list[str]] = {}
    found: list[list[str]] = [[]]
    left = 10 * MOST
    stream = iter(words(text))
    for word in stream:
        if word.mark:
            if word.text == BREAK and found[-1]:
                found.append([])
            continue
        assigned = _ASSIGNED.fullmatch(word.text) if not found[-1] else None
        if assigned is None:
            if found[-1] or word.text not in _DECLARES:
                made = expanded(word.text, variables) if left > 0 else [word.text]
                left -= len(made)
                found[-1].extend(made[: max(MOST - len(found[-1]), 0)])
            continue
        name, more, value = assigned.groups()
        values = [value] if value else _array(stream)
        values = [one for value in values for one in (expanded(value, variables) if left > 0 else [value])]
        left -= len(values)
        variables[name] = [*variables.get(name, []), *values][:MOST] if more else values[:MOST]
    return [one for one in found if one], variables


def _array(stream: Iterator[Word]) -> list[str]:
    """What stands between the parentheses that follow an assignment; nothing where none do."""
    held: list[str] = []
    begun = False
    for word in stream:
        if not begun:
            if not word.mark or word.text != OPEN:
                return [word.text] if not word.mark else []
            begun = True
        elif word.mark and word.text == CLOSE:
            return held
        elif not word.mark:
            held.append(word.text)
    return held


def expanded(word: str, variables: dict[str, list[str]], depth: int = DEPTH) -> list[str]:
    """A word with its variables put in: several words where it is nothing but a variable that holds several."""
    alone = _VARIABLE.fullmatch(word)
    if alone is not None and depth:
        values = _value(alone, variables)
        if values is None:
            return [word]
        parts = (
            [part.strip("'\"") for part in values[0].split()] if len(values) == 1 else values
        )  # a text, not an array
        return [
            one for part in parts[:MOST] for one in ([part] if part == word else expanded(part, variables, depth - 1))
        ]
    if "$" not in word or not depth:
        return [word]
    made = _SUM.sub(lambda found: _summed(found[1], variables) or found[0], word)
    return [_filled(made, variables)[:MOST]]


def _filled(word: str, variables: dict[str, list[str]]) -> str:
    def put(found: re.Match[str]) -> str:
        values = _value(found, variables)
        return found[0] if values is None else " ".join(values)[:MOST]

    return _VARIABLE.sub(put, word)


def _value(found: re.Match[str], variables: dict[str, list[str]]) -> list[str] | None:
    name, default = found[1] or found[3], found[2]
    if name in variables:
        return variables[name]
    return None if default is None else [default]


def _summed(text: str, variables: dict[str, list[str]]) -> str | None:
    """A sum, difference, product or quotient of two whole numbers, or of variables that hold them; None for what is none."""
    text = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda found: "".join(variables.get(found[1], [found[1]]))[:20], text)
    found = _PRODUCT.fullmatch(text)
    if found is None:
        return None
    left, sign, right = int(found[1]), found[2], int(found[3])
    if sign == "/":
        return str(left // right) if right else None
    return str({"*": left * right, "+": left + right, "-": left - right}[sign])
