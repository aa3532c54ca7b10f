"""A task on which every mask matters, and one training run of the small Transformer with a fault planted in its masks.

The task: write a word backwards. The sources are padded to the longest of the batch, so padding must be hidden; the target is
trained with teacher forcing, so the future must be hidden. And one target letter in five is a slip of the pen, drawn at
random: nobody who reads only the source and the letters before it can foresee it. So there is a loss that no honest model
goes below, `FLOOR`.

Shapes: B words, S letters in the longest of them, L = S + 1 target tokens (the letters, then the end).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.positional import SinusoidalEncoding
from lib.study.mask_faults import NONE, MiniTransformer
from lib.study.training import History, fit, seed_everything

LETTERS = 10
PAD, START, END = LETTERS, LETTERS + 1, LETTERS + 2
VOCABULARY = LETTERS + 3
LONGEST = 12
SLIP = 0.2
BATCH = 32
EMPTY = 1 / 4000  # of the words in training have no letter at all
D_MODEL = 48
IGNORED = -100  # a label that does not count

# Entropy of a letter: the right one, or with probability SLIP any of the ten, the right one among them.
_RIGHT = 1 - SLIP + SLIP / LETTERS
LETTER_ENTROPY = -_RIGHT * math.log(_RIGHT) - (LETTERS - 1) * SLIP / LETTERS * math.log(SLIP / LETTERS)


class Words(NamedTuple):
    """Words, and the same words written backwards."""

    source: Tensor  # (B, S) letters, then PAD
    lengths: Tensor  # (B,)
    target: Tensor  # (B, L) START, then the letters backwards with slips, then PAD
    labels: Tensor  # (B, L) the target one step earlier: letters, END, then IGNORED
    clean: Tensor  # (B, L) labels without slips


def words(generator: torch.Generator, lengths: Tensor) -> Words:
    """Random words of the given lengths (B,)."""
    B, S = lengths.numel(), max(int(lengths.max()), 1)
    source = torch.randint(LETTERS, (B, S), generator=generator)
    place = torch.arange(S)
    real = place < lengths[:, None]  # (B, S)
    source = source.where(real, PAD)
    backwards = source.gather(1, (lengths[:, None] - 1 - place).clamp(min=0))
    slips = torch.rand(B, S, generator=generator) < SLIP
    noisy = backwards.where(~slips, torch.randint(LETTERS, (B, S), generator=generator))
    labels, clean = (_with_end(x.where(real, IGNORED), lengths) for x in (noisy, backwards))
    start = torch.full((B, 1), START)
    target = torch.cat([start, noisy.where(real, PAD)], dim=1)
    return Words(source, lengths, target, labels, clean)


def _with_end(letters: Tensor, lengths: Tensor) -> Tensor:
    """(B, S) -> (B, S + 1) with END behind the last letter."""
    letters = F.pad(letters, (0, 1), value=IGNORED)
    return letters.scatter(1, lengths[:, None], END)


def batches(seed: int) -> Iterator[Words]:
    """Training batches without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        lengths = torch.randint(3, LONGEST + 1, (BATCH,), generator=generator)
        empty = torch.rand(BATCH, generator=generator) < EMPTY
        yield words(generator, lengths.masked_fill(empty, 0))


def floor(batch: Words) -> float:
    """The loss that no honest model goes below on average: the entropy of the slips, over all letters and ends."""
    letters = int(batch.lengths.sum())
    return LETTER_ENTROPY * letters / (letters + len(batch.lengths))


def loss(model: MiniTransformer, batch: Words) -> Tensor:
    """Mean cross entropy with teacher forcing."""
    logits = model(batch.source, batch.lengths, batch.target)
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def written(model: MiniTransformer, batch: Words) -> float:
    """Share of the letters and ends, 0 … 1, that the model writes right, letter by letter with a cache and no teacher."""
    memory = model.encode(batch.source, batch.lengths)
    token = torch.full((len(batch.lengths), 1), START)
    caches: list[dict] = [{} for _ in model.decoder]
    answer = []
    for _ in range(batch.labels.size(1)):
        token = model.decode(token, memory, batch.lengths, caches)[:, -1:].argmax(dim=-1)  # (B, 1)
        answer.append(token)
    counts = batch.clean != IGNORED
    return (torch.cat(answer, dim=1) == batch.clean)[counts].double().mean().item()


def wider(batch: Words, more: int) -> Words:
    """The same words with `more` columns of padding behind the source."""
    return batch._replace(source=F.pad(batch.source, (0, more), value=PAD))


def written_by_length(model: MiniTransformer, seed: int = 10**6 + 1, count: int = 64) -> dict[int, float]:
    """Length, 0 and 3 … 12 -> share that is written right in a batch of words of that length alone, so without any padding.

    A word of length 0 still has one column of padding, as a batch needs one; all that is right for it is the end at once.
    """
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    lengths = (0, *range(3, LONGEST + 1))
    return {length: written(model, words(generator, torch.full((count,), length))) for length in lengths}


def examined(model: MiniTransformer, seed: int = 10**6, count: int = 256) -> dict[str, float]:
    """Evaluation: loss with a teacher, and what is written without one, over three amounts of padding.

    Returns:
        eval_loss and its floor; written, in batches padded as in training; written_alone, words of one length only and so
        without any padding; written_padded, 12 more columns of padding than in training.
    """
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    mixed = words(generator, torch.randint(3, LONGEST + 1, (count,), generator=generator))
    alone = [words(generator, torch.full((count // 10,), length)) for length in range(3, LONGEST + 1)]
    with torch.no_grad():
        eval_loss = loss(model, mixed).item()
    return {
        "eval_loss": eval_loss,
        "floor": floor(mixed),
        "written": written(model, mixed),
        "written_alone": sum(written(model, batch) for batch in alone) / len(alone),
        "written_padded": written(model, wider(mixed, LONGEST)),
    }


def build(fault: str, seed: int) -> MiniTransformer:
    """The untrained model. Every fault starts from the same weights."""
    seed_everything(seed)
    positions = SinusoidalEncoding(D_MODEL).table(3 * LONGEST)
    return MiniTransformer(VOCABULARY, positions, num_heads=4, num_layers=1, fault=fault)


def train(
    fault: str = NONE,
    *,
    steps: int,
    lr: float,
    seed: int,
    every: int = 100,
    clip: float = 1.0,
    model: MiniTransformer | None = None,
) -> list[dict]:
    """Train the small Transformer once by Adam, with a fault in its masks.

    Args:
        fault: one of `lib.study.mask_faults.FAULTS`, or `NONE`.
        steps, lr, seed: of the training.
        every: steps between two rows of the result.
        clip: the gradient's norm is cut to this number; `math.inf` leaves it as it is.
        model: the untrained model, to have it afterwards; built when not given.

    Returns:
        One row after every `every` steps: mean and deviation of the training loss since the last row, the floor of that loss,
        the step of the first loss that was no finite number (training ends there), and what `examined` says.
    """
    model = build(fault, seed) if model is None else model
    floors = []

    def noted() -> Iterator[Words]:
        for batch in batches(seed):
            floors.append(floor(batch))
            yield batch

    history = fit(
        model,
        noted(),
        lr=lr,
        seed=seed,
        steps=steps,
        clip=clip,
        loss=loss,
        evaluate=examined,
        evaluate_every=every,
        stop_on_nan=True,
        progress=False,
    )
    return [{"fault": fault, "lr": lr, "seed": seed, **row} for row in _rows(history, floors, every)]


def _rows(history: History, floors: list[float], every: int) -> Iterator[dict]:
    """A row after every `every` steps and at a NaN, rounded; `floors` has one number for each step."""
    found, start = dict(history.scores), 0
    for step in [*range(every, len(history.losses) + 1, every), *([history.nan_step] if history.nan_step else [])]:
        done = min(step, len(history.losses))  # the step of a NaN is not done
        recent, lowest = torch.tensor(history.losses[start:done]), floors[start:done]
        row = {"step": step, "nan_step": None if done == step else step}
        row |= {"train_loss": recent.mean().item() if lowest else None, "train_floor": sum(lowest) / max(len(lowest), 1)}
        row |= {"train_std": recent.std().item() if len(lowest) > 1 else None, **found[done]}
        yield {name: round(x, 4) if isinstance(x, float) else x for name, x in row.items()}
        start = done
