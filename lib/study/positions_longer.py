"""A model trained at 32 tokens is taken to 128: what its table of positions needs for that, and how soon it is as good.

The ways to go: "interpolated", the old rows resized to 128; "new rows", the 32 old ones and 96 random ones; "from the start", a
fresh model that never saw 32; "sinusoids", a model without a table, which needs nothing made.
"""

import math
from functools import lru_cache

from torch import nn

from lib.study.positions import LENGTHS, TASKS, TRAINED, draw_batches, loss, make_model, score, stretched, train
from lib.study.training import fit, seed_everything

WAYS = ("interpolated", "new rows", "from the start", "sinusoids")
LONG = max(LENGTHS)
MORE = (0, 25, 50, 100, 200)  # steps at the longer length


def run(task: str, way: str, *, lr: float, seed: int, steps: int | None = None, more: tuple[int, ...] = MORE) -> list[dict]:
    """Train at 32 tokens, go to 128 in one of WAYS, train there, and test after each of `more` steps.

    Args:
        task: key of `positions.TASKS`.
        way: one of WAYS.
        lr: learning rate, of both trainings.
        seed: of the weights and of all batches.
        steps: at 32 tokens; those of the task when not given.
        more: steps at 128 tokens after which to test, rising, 0 for the test before any.

    Returns:
        One row for each of `more`, with accuracy and bits at 128 tokens.
    """
    model = start(task, way, lr, seed, steps or TASKS[task].steps)
    found = {0: score(model, task, LONG)}
    every = math.gcd(*more)
    if every:
        # One run for all tests: training in pieces would start Adam's memory anew at each.
        history = fit(
            model,
            draw_batches(task, seed + 1000, L=LONG),
            lr=lr,
            seed=seed,
            steps=max(more),
            loss=loss,
            evaluate=lambda model: score(model, task, LONG),
            evaluate_every=every,
            progress=False,
        )
        found |= dict(history.scores)
    return [
        {"task": task, "way": way, "lr": lr, "seed": seed, "length": LONG, "more_steps": step}
        | {"accuracy": round(found[step].accuracy, 4), "bits": round(found[step].bits, 4)}
        for step in more
    ]


def start(task: str, way: str, lr: float, seed: int, steps: int) -> nn.Module:
    """The model as it arrives at 128 tokens."""
    if way == "from the start":
        seed_everything(seed)
        return make_model(task, "learned").eval()
    model = _trained(task, "sinusoidal" if way == "sinusoids" else "learned", lr, seed, steps)
    twin = stretched(model, LONG) if way == "interpolated" else make_model(task, model.config.positional).eval()
    if way != "interpolated":
        twin.load_state_dict(model.state_dict())
    return twin


@lru_cache(maxsize=2)
def _trained(task: str, kind: str, lr: float, seed: int, steps: int) -> nn.Module:
    """Trained at 32 tokens; several ways begin with it, so callers copy it."""
    seed_everything(seed)
    model = make_model(task, kind)
    train(model, task, lr=lr, seed=seed, steps=steps, L=TRAINED)
    return model
