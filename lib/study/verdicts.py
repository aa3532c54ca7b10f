"""Verdicts on the subject's claims: each is computed from what a chapter measured, and could have come out otherwise."""

import re

_WORDS = ("holds", "holds when", "does not hold here")
_given: dict[str, str] = {}  # claim -> word, since the kernel started


def verdict(claim: str, *, holds: object, yes: str, no: str, when: bool = False) -> None:
    """Print the verdict on a claim as one line, `A5 · holds · sentence`; the ledger in chapters/claims.md repeats it.

    The line is compared letter by letter when the chapter is tested, on any machine. So the figures in a sentence are exact
    ones (shapes, counts, identities) or bounds with a margin ("at least 3 times"), not the last digits of a measurement.

    Args:
        claim: the claim's id in the ledger: a letter and a number.
        holds: the condition that decides, measured in the chapter: one boolean of Python, numpy or torch.
        yes: the sentence with its figures if the condition is true.
        no: the sentence if it is false.
        when: the claim holds under a condition only, which `yes` names: the verdict reads "holds when".

    Raises:
        TypeError: `holds` is not a boolean: anything else would be true by accident.
        ValueError: an id of another form; a sentence that is empty or more than one line; `yes` the same as `no`.

    Example:
        >>> verdict("A14", holds=True, yes="every row sums to 1", no="some row does not sum to 1")
        A14 · holds · every row sums to 1
    """
    if not re.fullmatch(r"[A-Z][1-9]\d*", claim):
        raise ValueError(f"a claim's id is a letter and a number such as A5, got {claim!r}.")
    for name, sentence in (("yes", yes), ("no", no)):
        if not sentence.strip() or len(sentence.splitlines()) != 1 or sentence != sentence.strip():
            raise ValueError(f"{name} is one line of text without space around it, got {sentence!r}.")
    if yes == no:
        raise ValueError(f"yes and no say the same, {yes!r}: a verdict must be able to come out otherwise.")
    word = _WORDS[1 if when else 0] if _truth(holds) else _WORDS[2]
    _given[claim] = word
    print(f"{claim} · {word} · {no if word == _WORDS[2] else yes}")


def summary() -> None:
    """Print the claims of the chapter so far, under the three verdicts, in the order of their numbers."""
    for word in _WORDS:
        claims = sorted((claim for claim, given in _given.items() if given == word), key=lambda claim: int(claim[1:]))
        print(f"{word}: {', '.join(claims) or 'none'}")


def _truth(value: object) -> bool:
    """One boolean, also as numpy.bool or a tensor of one element. Neither library is imported for it."""
    if isinstance(value, bool):
        return value
    if str(getattr(value, "dtype", "")) in ("bool", "torch.bool") and getattr(value, "shape", None) == ():
        return bool(value)
    raise TypeError(
        f"holds is one boolean, got {type(value).__name__} {value!r}. Compare with a bound, and join several with all(…)."
    )
