"""Three faults that a loss hides and a map shows: a small reader of news, in plain torch, with one line wrong.

The reader tells the five topics of BBC News from the first 8 to 64 words of an article (`mask_documents.texts`). The words
themselves nearly decide, so the loss forgives the attention a lot.

Shapes: B texts, L words in the longest, H = 4 heads, d = 8 the width of each.
"""

import math

import torch
from torch import Tensor, nn

from lib.diagnostics import record_attention
from lib.positional import SinusoidalEncoding
from lib.study.data import TOPICS, Batch, Vocabulary, batches
from lib.study.mask_documents import VOCABULARY_SIZE, texts
from lib.study.training import accuracy, classification_loss, fit, seed_everything

SOUND = "sound"
FUTURE, PADDING, COPIES = "causal mask in an encoder", "padding attended to", "one head four times"
# Fault -> the line of code that makes it.
FAULTS = {
    FUTURE: "allowed = real & ones(L, L).tril()",
    PADDING: "allowed = ones(L, L)",
    COPIES: "ModuleList([Head(d_model)] * num_heads)",
}
D_MODEL, HEADS, LONGEST = 32, 4, 64


class Reader(nn.Module):
    """Words and positions, one attention beside a residual connection, and a linear map of the mean over the real words."""

    def __init__(self, fault: str = SOUND):
        super().__init__()
        self.fault = fault
        self.embedding = nn.Embedding(VOCABULARY_SIZE, D_MODEL)
        self.register_buffer("positions", SinusoidalEncoding(D_MODEL).table(LONGEST), persistent=False)
        heads = [_Head() for _ in range(HEADS)]
        self.heads = nn.ModuleList(heads[:1] * HEADS if fault == COPIES else heads)
        self.out_proj, self.norm = nn.Linear(D_MODEL, D_MODEL), nn.LayerNorm(D_MODEL)
        self.output = nn.Linear(D_MODEL, len(TOPICS))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens (B, L), lengths (B,) -> logits (B, 5)."""
        L = tokens.size(1)
        real = torch.arange(L) < lengths[:, None]  # (B, L)
        allowed = torch.ones(L, L, dtype=torch.bool) if self.fault == PADDING else real[:, None, None, :]
        if self.fault == FUTURE:
            allowed = allowed & torch.ones(L, L, dtype=torch.bool).tril()
        x = self.embedding(tokens) + self.positions[:L]
        q, k, v = (torch.stack(parts, dim=1) for parts in zip(*(head(x) for head in self.heads), strict=True))  # (B, H, L, d)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
        x = self.norm(x + self.out_proj((weights @ v).transpose(1, 2).flatten(2)))
        return self.output((x * real[..., None]).sum(dim=1) / lengths[:, None])


class _Head(nn.Module):
    """The three maps of one head."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D_MODEL, D_MODEL // HEADS) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q(x), self.k(x), self.v(x)


def train(fault: str, seed: int, *, steps: int = 300, lr: float = 1e-2) -> tuple[Reader, dict[str, float]]:
    """Train once by Adam, on batches of 32 texts.

    Returns:
        The reader, and its figures: mean training loss of the last 50 steps, loss and accuracy on the dev texts.
    """
    seed_everything(seed)
    model = Reader(fault)
    stream = batches(texts("train"), 32, shuffle=True, seed=seed, epochs=None)
    history = fit(model, stream, lr=lr, seed=seed, steps=steps)
    return model, {
        "train_loss": sum(history.losses[-50:]) / len(history.losses[-50:]),
        "dev_loss": dev_loss(model),
        "dev_accuracy": accuracy(model, batches(texts("dev"), 64)),
    }


@torch.no_grad()
def dev_loss(model: Reader) -> float:
    """Mean loss of the dev texts."""
    losses = [(classification_loss(model, batch).item(), len(batch.labels)) for batch in batches(texts("dev"), 64)]
    return sum(loss * n for loss, n in losses) / sum(n for _, n in losses)


def maps(model: Reader, batch: Batch) -> Tensor:
    """(B, H, L, L) weights of each head."""
    with torch.no_grad(), record_attention(model) as weights:
        model(batch.tokens, batch.lengths)
    return weights[""]


def marks(weights: Tensor, lengths: Tensor) -> dict[str, float]:
    """What to look for in a map, over the rows of real words.

    Returns:
        later: weight on later words; padding: weight on padding; unlike: the largest difference between the two heads that are
        most alike.
    """
    L, H = weights.size(-1), weights.size(1)
    real = torch.arange(L) < lengths[:, None]  # (B, L)
    rows = weights.transpose(1, 2)[real]  # (real words, H, L)
    place = torch.arange(L).expand(len(lengths), L)[real]  # of the query
    padded = ~real[:, None].expand(-1, L, -1)[real]  # (real words, L)
    later = (torch.arange(L) > place[:, None]) & ~padded
    pairs = torch.combinations(torch.arange(H))
    unlike = (rows[:, pairs[:, 0]] - rows[:, pairs[:, 1]]).abs().amax(dim=(0, 2)).min()
    return {
        "later": (rows * later[:, None]).sum(dim=-1).mean().item(),
        "padding": (rows * padded[:, None]).sum(dim=-1).mean().item(),
        "unlike": unlike.item(),
    }


def received(model: Reader, batch: Batch) -> list[Tensor]:
    """For each text the mean weight that each of its words gets from all its words and all heads, (n,)."""
    weights = maps(model, batch).mean(dim=1)  # (B, L, L)
    return [w[:n, :n].mean(dim=0) for w, n in zip(weights, batch.lengths.tolist(), strict=True)]


@torch.no_grad()
def effects(model: Reader, batch: Batch) -> list[Tensor]:
    """For each text how far the logit of its predicted topic moves when a word is made unknown, for each of its words, (n,)."""
    found = []
    for text, n in zip(batch.tokens, batch.lengths.tolist(), strict=True):
        text = text[None, :n]
        hidden = text.repeat(n, 1).fill_diagonal_(Vocabulary.UNK)  # row i lacks word i
        logits = model(torch.cat([text, hidden]), torch.full((n + 1,), n))
        topic = logits[0].argmax()
        found.append((logits[1:, topic] - logits[0, topic]).abs())
    return found


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """How far two lists of numbers (n,) have the same order: 1 the same, 0 unrelated, −1 the reverse (Spearman's)."""
    ranks = torch.stack([one.argsort().argsort(), other.argsort().argsort()]).double()
    return torch.corrcoef(ranks)[0, 1].item()
