"""A task that only a match by content can solve, and a net of one head that learns it: what the scale does to training.

Each sequence holds n pairs of a key and a value; one key is asked for, and the answer is its value. Keys and values are drawn
anew for every sequence, so nothing can be learned by heart: query and key have to find each other.

Shapes: B sequences in the batch, n pairs in each, d_model width of a token, d_k width of query and key.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.attention import scaled_dot_product_attention

KEYS, VALUES, PAIRS, D_MODEL = 32, 16, 16, 32
WINDOW = 20  # steps over which the training accuracy is averaged; every batch is new, so it is the accuracy on unseen data
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
OPTIMIZERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


class Question(NamedTuple):
    """A batch of the task."""

    keys: Tensor  # (B, n) int64, all different within a sequence
    values: Tensor  # (B, n) int64
    asked: Tensor  # (B,) int64, one of the keys
    answer: Tensor  # (B,) int64, the value beside it


def questions(seed: int, batch_size: int = 32) -> Iterator[Question]:
    """Batches without end, from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.arange(batch_size)
    while True:
        keys = torch.rand(batch_size, KEYS, generator=generator).argsort(dim=-1)[:, :PAIRS]
        values = torch.randint(VALUES, (batch_size, PAIRS), generator=generator)
        place = torch.randint(PAIRS, (batch_size,), generator=generator)
        yield Question(keys, values, keys[row, place], values[row, place])


def textbook_attention(query, key, value, *, scale: float | None = None, need_weights: bool = False):
    """The formula word for word, all of it in the precision of the inputs, the scores scaled after their product."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    weights = (query @ key.mT * scale).softmax(dim=-1)
    return (weights @ value, weights) if need_weights else weights @ value


class Recall(nn.Module):
    """One head of attention from the asked key to the pairs. Parts of queries and keys start with variance 1, as in A10.

    Args:
        d_k: width of query and key.
        scaled: scores times 1/√d_k, or as they are.
        attention: `scaled_dot_product_attention`, or another form of it.
    """

    def __init__(self, d_k: int, *, scaled: bool = True, attention: Callable = scaled_dot_product_attention):
        super().__init__()
        self.key_embedding = nn.Embedding(KEYS, D_MODEL)
        self.value_embedding = nn.Embedding(VALUES, D_MODEL)
        self.q_proj = nn.Linear(D_MODEL, d_k, bias=False)
        self.k_proj = nn.Linear(D_MODEL, d_k, bias=False)
        self.v_proj = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.head = nn.Linear(D_MODEL, VALUES)
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.normal_(projection.weight, std=1 / math.sqrt(D_MODEL))
        self.scale = None if scaled else 1.0
        self.attention = attention

    def forward(self, question: Question) -> tuple[Tensor, Tensor]:
        """Logits (B, VALUES) of the answer, and the weights (B, n) of the pairs."""
        pairs = (self.key_embedding(question.keys) + self.value_embedding(question.values)) / math.sqrt(2)  # (B, n, d_model)
        query = self.q_proj(self.key_embedding(question.asked))[:, None]  # (B, 1, d_k)
        output, weights = self.attention(
            query, self.k_proj(pairs), self.v_proj(pairs), scale=self.scale, need_weights=True
        )  # (B, 1, d_model), (B, 1, n)
        return self.head(output[:, 0]), weights[:, 0]


@dataclass
class Run:
    """What a training run was like. Lists have an entry for each step."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)  # mean entropy of the weights, in nats, 0 … log n
    query_gradient: float = math.nan  # norm of the gradient of the query projection before the first step
    nan_step: int | None = None  # the first step, counted from 1, whose loss was no finite number

    def steps_to(self, accuracy: float) -> int | None:
        """The first step at which the mean accuracy of the last `WINDOW` steps has reached this; None if it never has."""
        for step in range(WINDOW, len(self.accuracies) + 1):
            if sum(self.accuracies[step - WINDOW : step]) >= accuracy * WINDOW - 1e-9:
                return step
        return None


def train(
    d_k: int,
    lr: float,
    *,
    scaled: bool,
    seed: int,
    optimizer: str = "adam",
    precision: str = "float32",
    attention: Callable = scaled_dot_product_attention,
    steps: int = 300,
    goal: float = 0.9,
) -> Run:
    """Train from a fresh start until the goal is reached, the loss is no finite number, or the steps are over.

    Both arms of one seed start from the same weights and see the same questions. Nothing is clipped or warmed up, since that
    would hide what is measured. Weights, gradients and optimizer are all in the one precision; the loss is in float32.

    Args:
        d_k: width of query and key.
        lr: learning rate.
        scaled: scores times 1/√d_k, or as they are.
        seed: of weights and questions.
        optimizer: "adam", or "sgd" without momentum.
        precision: "float32", "bfloat16" or "float16".
        attention: the form of attention.
        steps: the most there are.
        goal: accuracy over the last `WINDOW` steps that ends the run.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Recall(d_k, scaled=scaled, attention=attention).to(PRECISIONS[precision])
    update = OPTIMIZERS[optimizer](model.parameters(), lr=lr)
    run = Run()
    for step, question in zip(range(1, steps + 1), questions(seed), strict=False):
        logits, weights = model(question)
        loss = F.cross_entropy(logits.float(), question.answer)
        if not loss.isfinite():
            run.nan_step = step
            break
        update.zero_grad()
        loss.backward()
        if step == 1:
            run.query_gradient = model.q_proj.weight.grad.float().norm().item()
        update.step()
        run.losses.append(loss.item())
        run.accuracies.append((logits.argmax(dim=-1) == question.answer).float().mean().item())
        run.entropies.append(torch.special.entr(weights.detach().float()).sum(dim=-1).mean().item())
        if sum(run.accuracies[-WINDOW:]) >= goal * WINDOW - 1e-9:
            break
    return run
