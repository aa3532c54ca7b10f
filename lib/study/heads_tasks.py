"""Several look-ups at once, and the small net that learns them: what more than one head is for.

Shapes: B tables in the batch, L = 12 tokens in each, R relations (how many others each token asks for), D width.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from lib.multihead import MultiHeadAttention, recorded_weights
from lib.study.data import Batch
from lib.study.training import History, accuracy, fit, seed_everything

NAMES, VALUES, MEMBERS = 32, 8, 12
SYMBOLS = 16  # of the copy task
WIDTH = 64  # D
DEV, TEST = 1_000_000, 2_000_000  # seeds of tables that no training sees
COIN = 1 / 2 + 1 / 2 / VALUES  # right answers of one who knows both values and not which is which


def look_ups(seed: int, relations: int = 2, batch_size: int = 64) -> Iterator[Batch]:
    """Batches without end of tables in which each token asks for the values of several others, by their names, in order.

    The twelve tokens stand on a ring in random order: relation r asks for the token r steps on. So each token asks for
    `relations` different ones, and is asked for as often. A token is (name, names asked for …, value): 12 of 32 names, all
    different, one of 8 values each.

    Yields:
        Batch of tokens (B, 12, 2 + R), lengths (B,) all 12, labels (B, 12, R): the values asked for.
    """
    rng = np.random.default_rng(seed)
    rows = np.arange(batch_size)[:, None]
    while True:
        names = rng.permuted(np.tile(np.arange(NAMES), (batch_size, 1)), axis=1)[:, :MEMBERS]
        values = rng.integers(VALUES, size=names.shape)
        ring = rng.permuted(np.tile(np.arange(MEMBERS), (batch_size, 1)), axis=1)
        targets = np.empty((relations, *ring.shape), dtype=np.int64)
        for r in range(relations):
            targets[r][rows, ring] = np.roll(ring, -(r + 1), axis=1)
        tokens = np.stack([names, *(names[rows, target] for target in targets), values], axis=-1)
        labels = np.stack([values[rows, target] for target in targets], axis=-1)
        yield Batch(torch.from_numpy(tokens), torch.full((batch_size,), MEMBERS), torch.from_numpy(labels))


def held_out(part: int, relations: int = 2, batches: int = 10) -> list[Batch]:
    """The tables of DEV or TEST: 640 of them, 7,680 tokens."""
    return list(islice(look_ups(part, relations), batches))


class LookUpNet(nn.Module):
    """A token is the sum of vectors for its names and value; attention with a residual; a linear map to each answer.

    Args:
        attention: makes one layer that maps (B, L, D) to (output, weights).
        relations: R.
        layers: how many of them, one after another.
        feed_forward: whether a two-layer network follows, token by token, so that the read-out is not linear.
    """

    def __init__(self, attention: Callable[[], nn.Module], relations: int = 2, layers: int = 1, feed_forward: bool = False):
        super().__init__()
        self.relations = relations
        self.embeddings = nn.ModuleList(nn.Embedding(n, WIDTH) for n in [NAMES] * (1 + relations) + [VALUES])
        self.attentions = nn.ModuleList(attention() for _ in range(layers))
        self.feed_forward = (
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) if feed_forward else None
        )
        self.answers = nn.Linear(WIDTH, relations * VALUES)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens (B, L, 2 + R), none of them padding -> logits (B, L, R, values)."""
        x = sum(embed(part) for embed, part in zip(self.embeddings, tokens.unbind(-1), strict=True))  # (B, L, D)
        for attention in self.attentions:
            x = x + attention(x)[0]
        if self.feed_forward is not None:
            x = x + self.feed_forward(x)
        return self.answers(x).unflatten(-1, (self.relations, VALUES))


class CopyNet(nn.Module):
    """Attention alone between symbols and answers: what the layer does not pass on is lost. There is no residual around it.

    Args:
        attention: makes one layer that maps (B, L, D) to (output, weights).
    """

    def __init__(self, attention: Callable[[], nn.Module]):
        super().__init__()
        self.symbols, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(MEMBERS, WIDTH)
        self.attention, self.answer = attention(), nn.Linear(WIDTH, SYMBOLS)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens (B, 12) -> logits (B, 12, symbols)."""
        return self.answer(self.attention(self.symbols(tokens) + self.places.weight)[0])


def copies(seed: int, batch_size: int = 64) -> Iterator[Batch]:
    """Batches without end of 12 random symbols, to be given back as they are."""
    rng = np.random.default_rng(seed)
    while True:
        symbols = torch.from_numpy(rng.integers(SYMBOLS, size=(batch_size, MEMBERS)))
        yield Batch(symbols, torch.full((batch_size,), MEMBERS), symbols)


def score_copy(attention: Callable[[], nn.Module], *, steps: int, lr: float, seed: int) -> float:
    """Share of symbols that a trained `CopyNet` gives back, on sequences of its own."""
    seed_everything(seed)
    net = CopyNet(attention)
    fit(net, copies(seed), lr=lr, seed=seed, steps=steps)
    return accuracy(net, islice(copies(TEST), 10))


def score_look_up(attention: Callable[[], nn.Module], *, steps: int, lr: float, seed: int, relations: int = 1) -> float:
    """Share of right answers of a trained `LookUpNet`, on tables of its own."""
    seed_everything(seed)
    net = LookUpNet(attention, relations)
    fit(net, look_ups(seed, relations), lr=lr, seed=seed, steps=steps)
    return accuracy(net, held_out(TEST, relations))


@torch.no_grad()
def answers_by_question(net: LookUpNet, tables: Iterable[Batch]) -> list[float]:
    """Share of right answers to each question, R numbers."""
    hits = torch.cat([(net(batch.tokens).argmax(dim=-1) == batch.labels).flatten(0, 1) for batch in tables])  # (N, R)
    return hits.float().mean(dim=0).tolist()


@torch.no_grad()
def weight_on_asked(net: LookUpNet, tables: Iterable[Batch]) -> Tensor:
    """How much of its weight each head of the first layer gives to the token that is asked for, by question: (H, R)."""
    found = []
    for tokens, _, _ in tables:
        with recorded_weights(net) as weights:
            net(tokens)
        names, asked = tokens[..., 0], tokens[..., 1:-1]  # (B, L), (B, L, R)
        wanted = asked[..., None] == names[:, None, None]  # (B, L, R, L) whether key j is the one that i asks for
        found.append(torch.einsum("bhij,birj->hr", weights["attentions.0"], wanted.float()) / names.numel())
    return torch.stack(found).mean(dim=0)


def train_look_ups(
    heads: int,
    *,
    d_k: int | None = None,
    relations: int = 2,
    layers: int = 1,
    feed_forward: bool = False,
    steps: int,
    lr: float,
    seed: int,
) -> tuple[LookUpNet, History]:
    """A net with so many heads, trained on tables of its own seed.

    Args:
        d_k: columns of each head's queries and keys; WIDTH / heads by default. Values keep that width in any case.
    """
    seed_everything(seed)
    net = LookUpNet(lambda: MultiHeadAttention(WIDTH, heads, d_k=d_k, d_v=WIDTH // heads), relations, layers, feed_forward)
    history = fit(net, look_ups(seed, relations), lr=lr, seed=seed, steps=steps)
    return net, history
