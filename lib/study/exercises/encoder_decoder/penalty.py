"""Exercise: which of several texts a beam search hands out, by their probability and their length."""

from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def right(log_probs: Tensor, lengths: Tensor, alpha: float) -> Tensor:
    """log_probs (B, K), lengths (B, K) integers -> (B, K)."""
    return log_probs / ((5 + lengths) / 6) ** alpha


def _cases() -> list[Case]:
    cases = []
    for i, (B, K, alpha) in enumerate(((2, 3, 0.6), (3, 4, 1.0), (1, 2, 0.0))):
        log_probs = -2 - 3 * random_tensor(B, K, seed=570 + i).abs()
        lengths = (3 + 4 * random_tensor(B, K, seed=580 + i).abs()).long()
        cases.append({"log_probs": log_probs, "lengths": lengths, "alpha": alpha})
    return cases


PENALTY = Exercise(
    hint="Divide each log-probability by ((5 + length) / 6) to the power of alpha.",
    why="Each further token makes a text less probable, so without the division the shortest text has an advantage. At "
    "alpha = 0 it has it.",
    shapes="log_probs and lengths are (B, K), and so is the answer.",
    next_step="With alpha = 0 every length is divided by 1; with alpha = 1 and length 7 it is divided by 2.",
    right=right,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda p, n, alpha: p * ((5 + n) / 6) ** alpha,
            "You multiply. A log-probability is negative, so that makes long texts worse still. Divide.",
        ),
        Mistake(
            lambda p, n, alpha: p / ((5 + n) / 6) * alpha, "alpha multiplies the result. It is a power of (5 + length) / 6."
        ),
        Mistake(
            lambda p, n, alpha: p / ((5 + n) ** alpha / 6),
            "The power holds for 5 + length alone. It holds for the quotient: ((5 + length) / 6) ** alpha.",
        ),
        Mistake(lambda p, n, alpha: p / (5 + n / 6) ** alpha, "Only the length is divided by 6. It is 5 + length that is."),
        Mistake(
            lambda p, n, alpha: p / n**alpha,
            "That is the power of the length itself, a penalty that is in use too. Here it is ((5 + length) / 6) ** alpha.",
        ),
        Mistake(
            lambda p, n, alpha: p.exp() / ((5 + n) / 6) ** alpha,
            "You divide the probability. Its logarithm is what is divided: log_probs, without exp.",
        ),
        Mistake(lambda p, n, alpha: p, "The length plays no part. Divide by ((5 + length) / 6) ** alpha."),
        Mistake(
            lambda p, n, alpha: (p / ((5 + n) / 6) ** alpha).max(dim=1).values,
            "That is the best score of each sequence. Return all of them, (B, K).",
        ),
    ),
)
