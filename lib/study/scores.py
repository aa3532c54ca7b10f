"""How wrong a prediction is: edit distance, word and phoneme error rates, and the F1 score of spans."""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple


class ErrorRates(NamedTuple):
    """Of transcriptions: shares from 0 (all right) up. Insertions can lift `phonemes` above 1."""

    words: float  # share of the words that equal none of their references
    phonemes: float  # edits to the closest reference, per phoneme of it


class SpanScores(NamedTuple):
    """Of predicted spans, each 0 … 1. A span counts as right if its kind, its start and its end are."""

    precision: float  # share of the predicted spans that are right
    recall: float  # share of the true spans that were found
    f1: float  # their harmonic mean


class Span(NamedTuple):
    """Tokens start … end − 1 are one thing of this kind."""

    kind: str
    start: int
    end: int


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions, each of one item, that turn a into b.

    Source: Wagner and Fischer 1974, "The String-to-String Correction Problem".
    """
    row = list(range(len(b) + 1))  # from the first i items of a to the first j of b, for i = 0
    for i, item in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (item != other))
    return row[-1]


def closest(prediction: Sequence[str], references: Iterable[Sequence[str]]) -> tuple[int, int]:
    """Edits from the prediction to the reference with the fewest of them (per phoneme, at a tie), and that one's length.

    Raises:
        ValueError: no references.
    """
    pairs = [(edit_distance(prediction, reference), len(reference)) for reference in references]
    if not pairs:
        raise ValueError("a prediction needs at least one reference to be compared with, got none.")
    return min(pairs, key=lambda pair: (pair[0], -pair[1]))


def error_rates(predictions: Sequence[Sequence[str]], references: Sequence[Iterable[Sequence[str]]]) -> ErrorRates:
    """Score transcriptions, each against the closest of its references.

    Args:
        predictions: one sequence of phonemes for each word.
        references: for each word, in the same order, its right pronunciations, at least one.

    Raises:
        ValueError: no words; another number of references than of predictions; a word without references.
    """
    if not predictions or len(predictions) != len(references):
        raise ValueError(
            f"every prediction needs its references, and one is the least, got {len(predictions)} and {len(references)}."
        )
    found = [closest(prediction, given) for prediction, given in zip(predictions, references, strict=True)]
    edits, phonemes = (sum(column) for column in zip(*found, strict=True))
    return ErrorRates(sum(count > 0 for count, _ in found) / len(found), edits / phonemes)


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans that BIO tags mark: B-x begins one of kind x, I-x goes on with it, O is outside of all.

    An I-x that has nothing to go on with begins a span, so that any tags mean something.

    Source: Ramshaw and Marcus 1995, "Text Chunking Using Transformation-Based Learning", section 4; the reading of a stray I is
    that of the CoNLL-2000 evaluation.
    """
    found: list[Span] = []
    for i, tag in enumerate(tags):
        if tag == "O":
            continue
        mark, _, kind = tag.partition("-")
        goes_on = mark == "I" and found and found[-1].end == i and found[-1].kind == kind
        if goes_on:
            found[-1] = found[-1]._replace(end=i + 1)
        else:
            found.append(Span(kind, i, i + 1))
    return found


def span_scores(predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], kind: str | None = None) -> SpanScores:
    """Score BIO tags by the spans they mark, over all sentences together.

    Args:
        predicted: the tags of each sentence.
        true: the same, right.
        kind: count the spans of this kind alone; of all kinds when not given.

    Raises:
        ValueError: sentences, or tags of a sentence, of unequal number.
    """
    right = guessed = there = 0
    for guess, truth in zip(predicted, true, strict=True):
        if len(guess) != len(truth):
            raise ValueError(f"a sentence of {len(truth)} tokens has {len(guess)} predicted tags.")
        ours, theirs = ({span for span in spans(tags) if kind in (None, span.kind)} for tags in (guess, truth))
        right, guessed, there = right + len(ours & theirs), guessed + len(ours), there + len(theirs)
    precision, recall = (right / total if total else 0.0 for total in (guessed, there))
    return SpanScores(precision, recall, 2 * right / (guessed + there) if guessed + there else 0.0)
