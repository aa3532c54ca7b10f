"""What a model without any sense of order can reach by counting: the floor of the four tasks, on their own test sequences.

Such a model knows which tokens it sees and how many of each, and nothing of where they stand. It names the most frequent one.

Shapes: B sequences in the batch, L tokens in each, V tokens of the vocabulary.
"""

from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.study.positions import DIGITS, SCORED, START, TASKS, TEST_SEED, UNSCORED, draw_batches

SMOOTH = 0.5


def counting(task: str, L: int, *, batches: int = 4) -> float:
    """Accuracy at length L of answering with the token that was seen most, of those that can be the answer.

    "three back": all tokens so far. "latest": those before with the same letter. "mirror": the whole sequence. Where several
    were seen equally often, one of them is drawn, which counts with its chance to be right.

    Args:
        task: one of the three with an exact answer.
        batches: of 128 test sequences, the same that `positions.score` asks.
    """
    right = []
    for batch in islice(draw_batches(task, TEST_SEED, L=L, part="test", B=128), batches):
        counts = _counts(task, batch.tokens)[:, -SCORED:]  # (B, 16, V)
        labels = batch.labels[:, -SCORED:]
        asked = labels != UNSCORED
        most = counts == counts.amax(dim=-1, keepdim=True)
        hit = most.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        right.append((hit / most.sum(dim=-1))[asked])
    return torch.cat(right).mean().item()


def frequency_bits(*, batches: int = 4) -> float:
    """Bits for a character of the text's test part, for a model that knows how often each occurs in training, and no more."""
    V = TASKS["text"].vocab_size
    seen = next(draw_batches("text", 0, L=128, B=4096)).labels
    share = torch.bincount(seen.flatten(), minlength=V).double() + SMOOTH
    cost = -(share / share.sum()).log2()
    asked = [batch.labels[:, -SCORED:] for batch in islice(draw_batches("text", TEST_SEED, part="test", B=128), batches)]
    return cost[torch.cat(asked)].mean().item()


def _counts(task: str, tokens: Tensor) -> Tensor:
    """(B, L, V): at each place, how often each token was seen that could be the answer there; START never is one."""
    seen = F.one_hot(tokens, TASKS[task].vocab_size)
    if task == "mirror":
        return seen.sum(dim=1, keepdim=True).expand_as(seen)
    counts = seen.cumsum(dim=1)
    counts[..., START] = 0
    if task == "three back":
        return counts
    letter = (torch.arange(counts.size(-1)) - 1).div(DIGITS, rounding_mode="floor")
    same = letter == letter[tokens][..., None]  # (B, L, V)
    return (counts - seen) * same
