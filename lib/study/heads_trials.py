"""One training run each of the experiments on the number of heads, for the script and for the chapter to repeat live."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lib.multihead import MultiHeadAttention
from lib.study import heads_letters, heads_tasks
from lib.study.classifiers import WIDTH, Classifier, OneLayer, trainable
from lib.study.data import TOPICS, batches, encode
from lib.study.training import accuracy, fit, seed_everything
from lib.study.trials import material

LOOK_UPS = {"two look-ups": 2, "four look-ups": 4}  # name -> how many at once
COLUMNS = ("task", "heads", "layers", "feed_forward", "steps", "lr", "seed", "parameters", "part", "accuracy", "loss")


class Masked(nn.Module):
    """`MultiHeadAttention` as `classifiers.OneLayer` calls it, with the mask as second argument."""

    def __init__(self, heads: int):
        super().__init__()
        self.attention = MultiHeadAttention(WIDTH, heads)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        """(B, L, D) -> (output, None)."""
        return self.attention(x, mask=mask)


def look_ups(
    task: str, heads: int, *, layers: int = 1, feed_forward: bool = False, steps: int, lr: float, seed: int, part: str
) -> dict:
    """One of LOOK_UPS: share of right answers, and the loss at the end of training."""
    relations = LOOK_UPS[task]
    setting = {"layers": layers, "feed_forward": feed_forward, "steps": steps, "lr": lr, "seed": seed}
    net, history = heads_tasks.train_look_ups(heads, relations=relations, **setting)
    score = accuracy(net, heads_tasks.held_out({"dev": heads_tasks.DEV, "test": heads_tasks.TEST}[part], relations))
    return _row(task, heads, trainable(net.attentions), part, score, _last(history.losses), **setting)


def one_head_blend(*, feed_forward: bool, steps: int, lr: float, seed: int) -> dict:
    """What one head does with two questions: how its weight is shared between the two tokens asked for, and what comes of it.

    Returns:
        A row: the mean weight of the one and of the other, the greater one first, and the share of right answers to each, in
        the same order.
    """
    net, _ = heads_tasks.train_look_ups(1, feed_forward=feed_forward, steps=steps, lr=lr, seed=seed)
    tables = heads_tasks.held_out(heads_tasks.TEST)
    weights = heads_tasks.weight_on_asked(net, tables)[0].tolist()
    answers = heads_tasks.answers_by_question(net, tables)
    (more, right_of_more), (less, right_of_less) = sorted(zip(weights, answers, strict=True), reverse=True)
    row = {"feed_forward": feed_forward, "steps": steps, "lr": lr, "seed": seed}
    row |= {"more_weight": round(more, 4), "less_weight": round(less, 4)}
    return row | {"right_of_more": round(right_of_more, 4), "right_of_less": round(right_of_less, 4)}


def width(*, heads: int, d_k: int, steps: int, lr: float, seed: int, part: str) -> dict:
    """Two look-ups with number and width of heads set apart: share of right answers, and the loss at the end of training."""
    net, history = heads_tasks.train_look_ups(heads, d_k=d_k, steps=steps, lr=lr, seed=seed)
    score = accuracy(net, heads_tasks.held_out({"dev": heads_tasks.DEV, "test": heads_tasks.TEST}[part]))
    row = {"heads": heads, "d_k": d_k, "steps": steps, "lr": lr, "seed": seed, "part": part}
    row |= {"parameters": trainable(net.attentions), "accuracy": round(score, 4)}
    return row | {"loss": round(_last(history.losses), 4)}


def topics(heads: int, *, steps: int, lr: float, seed: int, part: str) -> dict:
    """The topic of an article from its first 200 words, by one layer on fixed word vectors."""
    corpus, vocabulary, vectors = material()
    seed_everything(seed)
    layer = Masked(heads)
    model = Classifier(vectors, OneLayer(layer), len(TOPICS))
    stream = batches(encode(corpus.train, vocabulary), 32, shuffle=True, seed=seed, epochs=None, max_length=200)
    history = fit(model, stream, lr=lr, seed=seed, steps=steps)
    score = accuracy(model, batches(encode(getattr(corpus, part), vocabulary), 64, max_length=200))
    setting = {"layers": 1, "feed_forward": False, "steps": steps, "lr": lr, "seed": seed}
    return _row("topics", heads, trainable(layer), part, score, _last(history.losses), **setting)


def letters(heads: int, *, steps: int, lr: float, seed: int, part: str, layers: int = 2) -> dict:
    """Hidden letters of a phrase: share guessed right, and loss in nats, on held-out phrases."""
    model, _ = heads_letters.train_guesser(seed, steps=steps, lr=lr, num_heads=heads, num_layers=layers)
    score, loss = heads_letters.score(model, part)
    size = sum(trainable(layer.self_attn) for layer in model.encoder.layers)
    setting = {"layers": layers, "feed_forward": True, "steps": steps, "lr": lr, "seed": seed}
    return _row("letters", heads, size, part, score, loss, **setting)


TASKS = {**{task: partial(look_ups, task) for task in LOOK_UPS}, "topics": topics, "letters": letters}


def _row(task: str, heads: int, parameters: int, part: str, score: float, loss: float, **setting: Any) -> dict:
    row = {"task": task, "heads": heads, **setting, "parameters": parameters, "part": part}
    row |= {"accuracy": round(score, 4), "loss": round(loss, 4)}
    return {column: row[column] for column in COLUMNS}


def _last(losses: list[float], window: int = 50) -> float:
    return float(torch.tensor(losses[-window:]).mean())
