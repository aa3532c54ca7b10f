"""Heads of the query that share keys and values: one training run for each number of them, and what a cache of theirs holds.

Shapes: B sequences in the batch, L tokens in each, D width of a token.
"""

import math
from collections.abc import Callable

import torch
from torch import nn

from lib.cache import KVCache
from lib.multihead import MultiHeadAttention
from lib.study import heads_tasks, positions
from lib.study.classifiers import trainable
from lib.study.training import accuracy, classification_loss, fit, seed_everything
from lib.transformer import DecoderLM, TransformerConfig

HEADS, WIDTH, RELATIONS = 8, heads_tasks.WIDTH, 4
HELD_OUT = {"dev": heads_tasks.DEV, "test": heads_tasks.TEST}  # seeds of tables

Score = Callable[[nn.Module, str], tuple[float, float]]  # model and part -> accuracy and loss in nats


def attentions(model: nn.Module) -> list[MultiHeadAttention]:
    """All attention layers of a model."""
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


@torch.no_grad()
def cache_bytes(model: nn.Module) -> int:
    """Bytes that the caches of all attention layers hold for one token of one sequence: each is asked to keep one."""
    total = 0
    for attention in attentions(model):
        cache = KVCache(1)
        attention(next(attention.parameters()).new_zeros(1, 1, attention.d_model), cache=cache)
        total += cache.keys.nbytes + cache.values.nbytes
    return total


def look_up_net(num_kv_heads: int) -> nn.Module:
    """One layer that answers four look-ups for each token, as in the chapter on heads."""
    return heads_tasks.LookUpNet(lambda: MultiHeadAttention(WIDTH, HEADS, num_kv_heads=num_kv_heads), RELATIONS)


def language_model(num_kv_heads: int) -> DecoderLM:
    """Two causal layers that guess the next character, with rotary positions."""
    config = TransformerConfig(
        vocab_size=positions.TASKS["text"].vocab_size,
        d_model=WIDTH,
        num_heads=HEADS,
        num_kv_heads=num_kv_heads,
        num_decoder_layers=2,
        dim_feedforward=2 * WIDTH,
        dropout=0.0,
        norm_first=True,
        positional="rotary",
    )
    return DecoderLM(config)


@torch.no_grad()
def score_look_ups(model: nn.Module, part: str) -> tuple[float, float]:
    """Share of right answers, and loss in nats, on tables that no training sees."""
    tables = heads_tasks.held_out(HELD_OUT[part], RELATIONS)
    losses = [classification_loss(model, table).item() for table in tables]  # all of one size
    return accuracy(model, tables), sum(losses) / len(losses)


def score_text(model: nn.Module, part: str) -> tuple[float, float]:
    """The same of the last 16 characters of held-out stretches of 32."""
    found = positions.score(model, "text", positions.TRAINED, part=part)
    return found.accuracy, found.bits * math.log(2)


def run(task: str, num_kv_heads: int, *, lr: float, seed: int, steps: int) -> list[dict]:
    """Train once, and test on both parts.

    Args:
        task: "look-ups" or "text".
        num_kv_heads: of every attention, for 8 heads of the query.
        lr, seed, steps: of training.

    Returns:
        A row for "dev" and one for "test".
    """
    seed_everything(seed)
    score: Score
    if task == "text":
        model, score = language_model(num_kv_heads), score_text
        fit(model, positions.draw_batches("text", seed), lr=lr, seed=seed, steps=steps, loss=positions.loss, progress=False)
    else:
        model, score = look_up_net(num_kv_heads), score_look_ups
        fit(model, heads_tasks.look_ups(seed, RELATIONS), lr=lr, seed=seed, steps=steps, progress=False)
    row = {"task": task, "num_heads": HEADS, "num_kv_heads": num_kv_heads, "steps": steps, "lr": lr, "seed": seed}
    row |= {"parameters": sum(map(trainable, attentions(model))), "cache_bytes": cache_bytes(model)}
    rows = []
    for part in HELD_OUT:
        right, loss = score(model, part)
        rows.append(row | {"part": part, "accuracy": round(right, 4), "loss": round(loss, 4)})
    return rows
