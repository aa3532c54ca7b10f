"""Dates as people write them in 300 languages, made by Babel, with the spans of day, month and year to be found.

A sentence is a date among names and other numbers, all as its locale writes them: "Neuseeland: 1984 – 7. März 2024". Whole
languages are held out, with all their locales, so that their words for months are new to a model.

Source of the formats and names: the Unicode Common Locale Data Repository, as it comes with the package `babel`.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from functools import cache, lru_cache
from itertools import groupby
from string import Formatter
from typing import NamedTuple

import numpy as np
from babel import Locale, localedata
from babel.dates import DateTimeFormat, format_time, tokenize_pattern
from babel.numbers import format_currency, format_decimal, format_percent

KINDS = {"d": "DAY", "M": "MONTH", "L": "MONTH", "y": "YEAR"}  # of the fields in a pattern
TAGS = ("O", "B-DAY", "I-DAY", "B-MONTH", "I-MONTH", "B-YEAR", "I-YEAR")
SPLIT_SEED = 0
DEV_SHARE, TEST_SHARE = 0.1, 0.1
SKELETONS = ("yMMMM", "MMMMd", "yMMMd")  # beside the short, medium, long and full format: some are of two fields only

# {date} is a date, {name} a country, language or currency, {number} a bare number, {amount} one with a unit, {time} an hour.
TEMPLATES = (
    "{date}",
    "{name}, {date}",
    "{date}: {name}",
    "{name} ({date})",
    "{name}: {number} – {date}",
    "{date}, {time}, {name}",
    "{name} {amount}, {date}",
    "{number} {name}, {date} {amount}",
    "{date} – {date}",
    "{name}: {number}, {amount}",
)


class Piece(NamedTuple):
    """Part of a text that is a day, a month or a year, or, with the kind "", none of them."""

    text: str
    kind: str = ""


class Sentence(NamedTuple):
    """Tokens and the tag of each, one of TAGS."""

    locale: str
    text: str
    tokens: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Languages:
    """Languages in three parts, each with its locales: fit on `train`, choose with `dev`, touch `test` once."""

    train: dict[str, list[str]]
    dev: dict[str, list[str]]
    test: dict[str, list[str]]


@lru_cache(maxsize=1)
def load_languages() -> Languages:
    """All languages of Babel that have names for the months, in one fixed split by a hash of the language's code."""
    parts = Languages({}, {}, {})
    for identifier in sorted(localedata.locale_identifiers()):
        locale = Locale.parse(identifier)
        if locale.months["format"]["wide"][3] == "M03":  # the placeholder of a locale that nobody has translated
            continue
        digest = hashlib.sha256(f"{SPLIT_SEED} {locale.language}".encode()).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64  # uniform in 0 … 1
        part = parts.test if place < TEST_SHARE else parts.dev if place < TEST_SHARE + DEV_SHARE else parts.train
        part.setdefault(locale.language, []).append(identifier)
    return parts


def date_pieces(day: date, pattern: str, locale: str) -> list[Piece]:
    """A date in a pattern of the Unicode standard, as `babel.dates.format_date` writes it, piece by piece."""
    values = DateTimeFormat(day, Locale.parse(locale))
    pieces = []
    for what, content in tokenize_pattern(pattern):
        if what == "chars":
            pieces.append(Piece(content))
        else:
            letter, width = content
            pieces.append(Piece(values[letter * width], KINDS.get(letter, "")))
    return pieces


@cache
def patterns(locale: str) -> tuple[str, ...]:
    """How a locale writes dates: its formats from short to full, and further ones that it has."""
    known = Locale.parse(locale)
    found = [known.date_formats[length] for length in ("short", "medium", "long", "full")]
    found += [known.datetime_skeletons[name] for name in SKELETONS if name in known.datetime_skeletons]
    return tuple(dict.fromkeys(str(pattern.pattern) for pattern in found))


def tokenize(text: str) -> list[str]:
    """Words, runs of digits, and signs one by one, in order: "7. März" -> ["7", ".", "März"]. Invisible marks are dropped."""
    return [text[start:end] for start, end in _token_places(text)]


def tag(pieces: Iterable[Piece]) -> tuple[list[str], list[str]] | None:
    """Tokens of the joined text and their BIO tags; None where a piece begins or ends within a word ("במרץ", "in March")."""
    text, owners = "", []
    for number, piece in enumerate(pieces):
        text += piece.text
        owners += [(number, piece.kind) if piece.kind else None] * len(piece.text)
    tokens, tags, last = [], [], None
    for start, end in _token_places(text):
        if len(set(owners[start:end])) > 1:
            return None
        owner = owners[start]
        tokens.append(text[start:end])
        tags.append("O" if owner is None else f"{'I' if owner == last else 'B'}-{owner[1]}")
        last = owner
    return tokens, tags


def sentences(languages: dict[str, list[str]], count: int, seed: int) -> list[Sentence]:
    """Draw sentences, each language as often as any other, and then each of its locales.

    Raises:
        ValueError: no languages.
    """
    if not languages:
        raise ValueError("sentences need at least one language to be written in, got none.")
    rng = np.random.default_rng(seed)
    names = sorted(languages)
    found: list[Sentence] = []
    while len(found) < count:
        locales = languages[names[rng.integers(len(names))]]
        locale = locales[rng.integers(len(locales))]
        pieces = _fill(_one_of(rng, TEMPLATES), locale, rng)
        tagged = tag(pieces)
        if tagged is not None:
            found.append(Sentence(locale, "".join(piece.text for piece in pieces), *map(tuple, tagged)))
    return found


@cache
def _names(locale: str) -> tuple[str, ...]:
    """Countries, languages and currencies, as the locale calls them."""
    known = Locale.parse(locale)
    return tuple(sorted({*known.territories.values(), *known.languages.values(), *known.currencies.values()})) or ("?",)


def _fill(template: str, locale: str, rng: np.random.Generator) -> list[Piece]:
    """A template with everything in its place."""
    pieces = []
    for before, name, _, _ in Formatter().parse(template):
        pieces.append(Piece(before))
        if name == "date":
            day = date(1900, 1, 1) + timedelta(days=int(rng.integers(73_049)))  # 1900 … 2099
            pieces += date_pieces(day, _one_of(rng, patterns(locale)), locale)
        elif name is not None:
            pieces.append(Piece(_other(name, locale, rng)))
    return pieces


def _other(what: str, locale: str, rng: np.random.Generator) -> str:
    """A name or a number that is no part of a date, though it may look like one."""
    if what == "name":
        return _one_of(rng, _names(locale))
    if what == "time":
        return format_time(time(int(rng.integers(24)), int(rng.integers(60))), "short", locale=locale)
    number = int(rng.integers(1, 32) if rng.random() < 0.5 else rng.integers(1900, 2100))
    if what == "number":
        return str(number)
    currency = _one_of(rng, ("EUR", "USD", "JPY"))
    ways = (format_percent(number / 100, locale=locale), format_currency(number, currency, locale=locale))
    return _one_of(rng, (*ways, format_decimal(number + 0.5, locale=locale)))


def _one_of(rng: np.random.Generator, things: Sequence[str]) -> str:
    return things[rng.integers(len(things))]


def _token_places(text: str) -> list[tuple[int, int]]:
    """Start and end of each token."""
    places = []
    for kind, group in groupby(range(len(text)), key=lambda i: _kind(text[i])):
        run = list(group)
        if kind == "sign":
            places += [(i, i + 1) for i in run]
        elif kind:
            places.append((run[0], run[-1] + 1))
    return places


def _kind(character: str) -> str:
    """Letters with their marks, digits, signs, or "" for what is not seen: spaces and marks of direction."""
    return {"L": "word", "M": "word", "N": "digits", "Z": "", "C": ""}.get(unicodedata.category(character)[0], "sign")
