"""How loud positions are beside words: claim P9. Loudness is a root mean square, over the numbers of a vector."""

import pandas as pd
from torch import Tensor, nn

from lib.study.positions import make_model, score, train
from lib.study.training import seed_everything

USUAL = 0.5**0.5  # the loudness of sinusoids beside embeddings of loudness 1
RATIOS = (0.02, 0.12, 0.7, 5.7, 16.0)  # positions / embeddings


class Scaled(nn.Module):
    """Adds an encoding times a fixed factor."""

    def __init__(self, encoding: nn.Module, factor: float):
        super().__init__()
        self.encoding, self.factor = encoding, factor

    def forward(self, x: Tensor, **where) -> Tensor:
        """x (B, L, d_model) -> x + factor · encoding of its positions."""
        return x + self.factor * (self.encoding(x, **where) - x)


def set_ratio(model: nn.Module, ratio: float) -> None:
    """Make positions `ratio` times as loud as embeddings, at the start of training.

    The louder of the two has its usual size, so the sum of both is of one size whatever the ratio. A learned table is made
    with that loudness and can change it; sinusoids stay as they are made.
    """
    embedding = model.embedding
    embeddings, positions = (1.0, ratio) if ratio <= USUAL else (USUAL / ratio, USUAL)
    embedding.scale = embeddings * embedding.tokens.embedding_dim**0.5  # they are made with deviation 1/√d_model
    if model.config.positional == "learned":
        nn.init.normal_(embedding.positions.weight, std=positions)
    else:
        embedding.positions = Scaled(embedding.positions, positions / USUAL)


def loudness(model: nn.Module, L: int) -> tuple[float, float]:
    """Root mean square of embeddings, as they enter the sum, and of the first L positions."""
    words = model.embedding.tokens.weight[None] * model.embedding.scale  # (1, V, d_model)
    nothing = words.new_zeros(1, L, words.size(-1))
    return words.square().mean().sqrt().item(), model.embedding.positions(nothing).square().mean().sqrt().item()


def run(task: str, kind: str, ratio: float, *, lr: float, seed: int, steps: int | None = None) -> dict:
    """Train one model whose positions are `ratio` times as loud as its embeddings, and test it at the trained length.

    Args:
        task: key of `positions.TASKS`.
        kind: "sinusoidal" or "learned".
        ratio: of the loudness.
        lr, seed, steps: as in `positions.run`.

    Returns:
        One row, with the steps to 90 % on the dev part, and accuracy and bits on the test part.
    """
    seed_everything(seed)
    model = make_model(task, kind)
    set_ratio(model, ratio)
    facts = train(model, task, lr=lr, seed=seed, steps=steps)
    words, places = loudness(model, 32)
    dev, test = (score(model, task, 32, part=part) for part in ("dev", "test"))
    return (
        {"task": facts.pop("task"), "kind": kind, "ratio": ratio, **facts}
        | {"ratio_after": round(places / words, 3), "dev_bits": round(dev.bits, 4)}
        | {"accuracy": round(test.accuracy, 4), "bits": round(test.bits, 4)}
    )


def best_rate(runs: pd.DataFrame) -> float:
    """The learning rate of the run, of one arm with seed 0, that is soonest 90 % right on dev data; in a tie, by dev bits."""
    return runs.sort_values(["steps_to_90", "dev_bits"], na_position="last")["lr"].iloc[0]
