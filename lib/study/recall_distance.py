"""What each form of attention can still look up: over distance, over length, and over the number of pairs to keep in mind.

A token is a pair of a key and a value, a filler (a value without a key), or a question (a key without a value). All keys of a
sequence differ. The last 8 tokens are questions about 8 different pairs before them; the distance of a question is the number
of tokens from it back to its pair. Nothing but a match by content can answer it: keys, values and places are drawn anew each
time, and tokens carry no positions.

Shapes: B sequences in the batch, L tokens in each, Q = 8 questions, H heads of width d.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product

import numpy as np
import torch
from torch import Tensor, nn

from lib.attention import scaled_dot_product_attention
from lib.efficient import (
    SegmentedAttention,
    elu_features,
    linear_attention,
    random_features,
    strided_attention,
    windowed_attention,
)
from lib.layers import FeedForward
from lib.study.classifiers import trainable
from lib.study.data import Batch
from lib.study.training import fit, seed_everything

KEYS, VALUES = 256, 16  # number 0 of each stands for none
QUESTIONS = 8
LENGTHS = (64, 128, 256)
FEWEST = 8  # pairs
TOKENS = 2048  # of a training batch, whatever its length
WIDTH, HEADS, LAYERS = 64, 2, 2
D_HEAD = WIDTH // HEADS
WINDOW, STRIDE, SEGMENT = 32, 16, 16
FEATURES = 64  # random ones, of each head
EDGES = (0, 16, 32, 64, 128, 256)  # cells of distance: 1–16, 17–32, …
CELLS = ((64, 8), (128, 8), (256, 8), (256, 32), (256, 128))  # lengths and pairs of the test
TESTED = 256  # sequences of each cell
PARTS = {"train": 0, "dev": 1, "test": 2}

Form = Callable[[Tensor, Tensor, Tensor], Tensor]  # query, key, value (B, H, L, d) -> (B, H, L, d), causal


def draw(rng: np.random.Generator, B: int, L: int, pairs: int) -> tuple[Batch, Tensor]:
    """A batch of sequences, and how far each question is from its pair.

    The pairs asked for lie near and far alike: their places are drawn with chances of 1 / distance, so each doubling of the
    distance has about the same share. The others, never asked for, lie anywhere.

    Returns:
        Batch of tokens (B, L, 2), key and value; lengths (B,) all L; labels (B, Q), values 0 … 15. And distances (B, Q).

    Raises:
        ValueError: fewer pairs than questions, or more than there is room for.
    """
    room = L - QUESTIONS
    if not QUESTIONS <= pairs <= min(room, KEYS):
        raise ValueError(f"pairs must be {QUESTIONS} … {min(room, KEYS)} at length {L}, got {pairs}.")
    rows = np.arange(B)[:, None]
    # The greatest of log chance + Gumbel noise: draws without replacement in proportion to the chances.
    asked = (rng.gumbel(size=(B, room)) - np.log(L - np.arange(room))).argsort(axis=1)[:, -QUESTIONS:]
    asked = rng.permuted(asked, axis=1)  # (B, Q) places, in the order of the questions
    chance = rng.random((B, room))
    chance[rows, asked] = 2.0  # first of all
    places = np.concatenate((asked, chance.argsort(axis=1)[:, ::-1][:, QUESTIONS:pairs]), axis=1)  # (B, pairs)
    keys = 1 + rng.random((B, KEYS)).argsort(axis=1)[:, :pairs]
    tokens = np.zeros((B, L, 2), dtype=np.int64)
    tokens[:, :room, 1] = 1 + rng.integers(VALUES, size=(B, room))
    tokens[rows, places, 0] = keys
    tokens[:, room:, 0] = keys[:, :QUESTIONS]
    labels = tokens[rows, asked, 1] - 1
    batch = Batch(torch.from_numpy(tokens), torch.full((B,), L), torch.from_numpy(labels))
    return batch, torch.from_numpy(room + np.arange(QUESTIONS) - asked)


def training_batches(seed: int) -> Iterator[Batch]:
    """Batches without end of 2,048 tokens: a length of LENGTHS, and from 8 pairs to one for every other token.

    Few pairs are as frequent as many, by factors: 8 to 16 as often as 16 to 32.
    """
    rng = np.random.default_rng([seed, PARTS["train"]])
    while True:
        L = int(rng.choice(LENGTHS))
        pairs = round(np.exp(rng.uniform(np.log(FEWEST), np.log(L // 2))))
        yield draw(rng, TOKENS // L, L, pairs)[0]


class Layer(nn.Module):
    """Attention of one form, then a feed-forward network, each behind a norm and beside a residual connection."""

    def __init__(self, form: Form):
        super().__init__()
        self.form = form
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.in_proj, self.out_proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.feed_forward = FeedForward(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        parts = self.in_proj(self.norm1(x)).unflatten(-1, (3, HEADS, D_HEAD)).permute(2, 0, 3, 1, 4)  # (3, B, H, L, d)
        x = x + self.out_proj(self.form(*parts).transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm2(x))


class RecallNet(nn.Module):
    """Key and value of a token added up, two layers, and the logits of the answer at each of the last 8 tokens.

    Args:
        form: key of FORMS.
    """

    def __init__(self, form: str):
        super().__init__()
        self.keys, self.values = nn.Embedding(1 + KEYS, WIDTH), nn.Embedding(1 + VALUES, WIDTH)
        self.layers = nn.Sequential(*(Layer(FORMS[form]()) for _ in range(LAYERS)))
        self.norm, self.answer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VALUES)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens (B, L, 2), none of them padding -> logits (B, Q, VALUES)."""
        x = self.layers(self.keys(tokens[..., 0]) + self.values(tokens[..., 1]))
        return self.answer(self.norm(x[:, -QUESTIONS:]))


def window_and_stride(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Half of the heads see the last 16 tokens, half every 16th: both halves of Child et al. 2019, section 4.3."""
    near, far = zip(*(x.chunk(2, dim=1) for x in (query, key, value)), strict=True)
    return torch.cat(
        [windowed_attention(*near, STRIDE, is_causal=True), strided_attention(*far, STRIDE, is_causal=True)], dim=1
    )


class Segmented(SegmentedAttention):
    """`SegmentedAttention`, causal, called with nothing but query, key and value."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query, key and value (B, H, L, d) -> (B, H, L, d)."""
        return super().forward(query, key, value, is_causal=True)


def _linear(feature_map: Callable[[Tensor], Tensor]) -> Form:
    return partial(linear_attention, is_causal=True, feature_map=feature_map)


# name -> makes the attention of one layer. At length 256 each sparse query has about 32 links: a window of 32, every 8th token,
# 16 near and 16 far ones, or 16 of its segment and 15 summaries.
FORMS: dict[str, Callable[[], Form]] = {
    "full": lambda: partial(scaled_dot_product_attention, is_causal=True),
    "windowed": lambda: partial(windowed_attention, window=WINDOW, is_causal=True),
    "strided": lambda: partial(strided_attention, stride=STRIDE // 2, is_causal=True),
    "window + stride": lambda: window_and_stride,
    "segmented": lambda: Segmented(SEGMENT, HEADS, D_HEAD),
    "linear (elu)": lambda: _linear(elu_features),
    "linear (random)": lambda: _linear(random_features(D_HEAD, FEATURES)),
}


@torch.no_grad()
def score(model: RecallNet, L: int, pairs: int, part: str) -> list[dict]:
    """Share of right answers by distance, on sequences that are the same at each call.

    Returns:
        A row for each cell of EDGES that this length has room for: nearest, farthest, questions, accuracy.
    """
    batch, distances = draw(np.random.default_rng([PARTS[part], L, pairs]), TESTED, L, pairs)
    right = model(batch.tokens).argmax(dim=-1) == batch.labels
    rows = []
    for below, farthest in pairwise(EDGES):
        inside = (distances > below) & (distances <= farthest)
        if inside.any():
            count = int(inside.sum())
            cell = {"length": L, "pairs": pairs, "nearest": below + 1, "farthest": farthest, "questions": count}
            rows.append(cell | {"accuracy": round(right[inside].float().mean().item(), 4)})
    return rows


def run(form: str, *, lr: float, seed: int, steps: int) -> list[dict]:
    """Train one form once, and test it on all cells of both parts. A loss that is no number ends the training.

    Args:
        form: key of FORMS.
        lr, seed, steps: of training. All forms of one seed see the same sequences.

    Returns:
        A row for each part, length, number of pairs and cell of distance.
    """
    seed_everything(seed)
    model = RecallNet(form)
    history = fit(model, training_batches(seed), lr=lr, seed=seed, steps=steps, stop_on_nan=True, progress=False)
    last = history.losses[-50:]
    row = {"form": form, "steps": steps, "lr": lr, "seed": seed, "parameters": trainable(model)}
    row |= {"train_loss": None if history.nan_step else round(sum(last) / len(last), 4)}
    tests = product(("dev", "test"), CELLS)
    return [row | {"part": part} | cell for part, (L, pairs) in tests for cell in score(model, L, pairs, part)]
