"""How evenly an attention spreads its weights while it learns, from starts that are sound and starts that are not.

The task is the look-up of `lib.study.tasks`: each of 12 tokens wants the value of one other, which it has to find by name. A
network of one attention layer learns it, so the weights have to become sharp: spread evenly they answer one in eight, a guess.

Shapes: B tables, L = 12 tokens, D = 64.
"""

import math
from collections.abc import Callable
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.attention import SelfAttention
from lib.study import tasks
from lib.study.classifiers import WIDTH
from lib.study.training import fit, seed_everything
from lib.study.trials import LookupNet

SMALL = 0.02  # deviation of the small start; that of the usual one is 0.07

# Name -> how the matrices of query, key and value, each (D, D), start. "usual" is torch's: uniform within ±1/√D.
STARTS: dict[str, Callable[[list[Tensor]], object]] = {
    "usual": lambda maps: None,
    "small": lambda maps: [nn.init.normal_(w, std=SMALL) for w in maps],
    "orthogonal": lambda maps: [nn.init.orthogonal_(w) for w in maps],
    "one matrix": lambda maps: [w.copy_(maps[0]) for w in maps[1:]],
    "one number": lambda maps: [w.fill_(1 / w.size(1)) for w in maps],
    "zero": lambda maps: [w.zero_() for w in maps[:2]],
}


def build(start: str, seed: int) -> LookupNet:
    """The untrained network. Embeddings and output of one seed are the same from every start.

    Raises:
        ValueError: an unknown start.
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}.")
    seed_everything(seed)
    model = LookupNet(SelfAttention(WIDTH, WIDTH, WIDTH))
    attention = model.attention
    with torch.no_grad():
        STARTS[start]([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
    return model


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each row of weights (…, L, S) over that of S equal weights: 1 = all equal, 0 = all on one key. (…, L)."""
    return torch.special.entr(weights).sum(dim=-1) / math.log(weights.size(-1))


def train(start: str, lr: float, seed: int, *, steps: int = 400, every: int = 10) -> tuple[LookupNet, list[dict]]:
    """Train once by Adam, on a new batch of 64 tables at each step.

    Args:
        start: key of `STARTS`.
        lr, seed, steps: of the training.
        every: steps between two rows.

    Returns:
        The model, and a row for every `every` steps: the step, and means over the steps since the last row of the entropy (0 …
        1), of the share of right answers and of the loss.
    """
    model, seen = build(start, seed), []

    def loss(model: LookupNet, batch) -> Tensor:
        x = sum(embed(part) for embed, part in zip(model.embeddings, batch.tokens.unbind(-1), strict=True))  # (B, L, D)
        output, weights = model.attention(x)
        logits = model.head(x + output)  # (B, L, values)
        value = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
        right = (logits.argmax(dim=-1) == batch.labels).double().mean().item()
        seen.append((entropy(weights.detach()).mean().item(), right, value.item()))
        return value

    fit(model, islice(tasks.lookup(1000 + seed), steps), lr=lr, seed=seed, loss=loss)
    rows = []
    for step in range(every, steps + 1, every):
        means = torch.tensor(seen[step - every : step], dtype=torch.float64).mean(dim=0).tolist()
        rows.append({"step": step} | {name: round(x, 4) for name, x in zip(("entropy", "right", "loss"), means, strict=True)})
    return model, rows
