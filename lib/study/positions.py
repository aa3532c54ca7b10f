"""Tasks that need to know places, and one run of each kind of position: trained at one length, tested at longer ones.

Every task is scored on the last 16 tokens alone, so that a longer test asks about places that training never showed. Sequences
begin with a token of their own, `START`, as texts for language models do; those of "mirror" have no mark at either end.

Shapes: B sequences in the batch, L tokens in each, V tokens of the vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.positional import LearnedEncoding
from lib.study.data import Batch, load_bbc_news
from lib.study.training import fit, seed_everything
from lib.transformer import DecoderLM, EncoderTagger, TransformerConfig

KINDS = ("sinusoidal", "learned", "rotary", "alibi", "none")
TRAINED, LENGTHS = 32, (32, 48, 64, 96, 128)  # tokens: in training, in the tests
SCORED = 16  # the last tokens of each sequence
START, SYMBOLS, BACK = 0, 16, 3
LETTERS, DIGITS = 6, 5  # of `latest`
CHARACTERS = " abcdefghijklmnopqrstuvwxyz0123456789.,'-"  # of `text`; one more stands for all others
UNSCORED = -100
WIDTH = 64
PARTS = {"train": 0, "dev": 1, "test": 2}
TEST_SEED = 10_000  # of the sequences that score a model

Drawing = tuple[np.ndarray, np.ndarray]  # tokens and labels, (B, L) each


def three_back(rng: np.random.Generator, B: int, L: int, part: str) -> Drawing:
    """Distance alone: the answer is the token three places before, whatever it is."""
    tokens = _symbols(rng, B, L)
    labels = np.full((B, L), UNSCORED)
    labels[:, BACK:] = tokens[:, :-BACK]
    return tokens, labels


def latest(rng: np.random.Generator, B: int, L: int, part: str) -> Drawing:
    """Content and distance: a token is a letter with a digit; the answer is the latest one before with the same letter."""
    letters, digits = rng.integers(LETTERS, size=(B, L)), rng.integers(DIGITS, size=(B, L))
    tokens = 1 + DIGITS * letters + digits
    tokens[:, 0] = START
    labels = np.full((B, L), UNSCORED)
    seen = np.full((B, LETTERS), UNSCORED)
    rows = np.arange(B)
    for place in range(1, L):
        labels[:, place] = seen[rows, letters[:, place]]
        seen[rows, letters[:, place]] = tokens[:, place]
    return tokens, labels


def mirror(rng: np.random.Generator, B: int, L: int, part: str) -> Drawing:
    """The place in the whole: token i answers with the token as far from the end as it is from the start."""
    tokens = 1 + rng.integers(SYMBOLS, size=(B, L))
    return tokens, tokens[:, ::-1].copy()


def text(rng: np.random.Generator, B: int, L: int, part: str) -> Drawing:
    """Real language: the next character of BBC News. One seed gives the same last characters at every length."""
    characters = _characters(part)
    ends = rng.integers(max(LENGTHS), len(characters), size=B)
    stretch = characters[ends[:, None] + np.arange(-L + 1, 1)]  # (B, L): what comes after each token
    return np.concatenate((np.full((B, 1), START), stretch[:, :-1]), axis=1), stretch


def place(rng: np.random.Generator, B: int, L: int, part: str) -> Drawing:
    """Can a token tell its own place? The answer is its number, 0 … L − 1."""
    return _symbols(rng, B, L), np.tile(np.arange(L), (B, 1))


@dataclass(frozen=True)
class Task:
    """What is drawn, and the model that learns it.

    Args:
        draw: (rng, B, L, part) -> tokens and labels.
        vocab_size: number of tokens, which are the answers too.
        steps: of training.
        causal: whether a token sees only what went before.
    """

    draw: Callable[[np.random.Generator, int, int, str], Drawing]
    vocab_size: int
    steps: int
    causal: bool = True


TASKS = {
    "three back": Task(three_back, 1 + SYMBOLS, 400),
    "latest": Task(latest, 1 + LETTERS * DIGITS, 600),
    "mirror": Task(mirror, 1 + SYMBOLS, 400, causal=False),
    "text": Task(text, 2 + len(CHARACTERS), 700),
    "place": Task(place, max(LENGTHS), 600),
    "place, both ways": Task(place, max(LENGTHS), 600, causal=False),
}


def draw_batches(task: str, seed: int, *, L: int = TRAINED, part: str = "train", B: int = 32) -> Iterator[Batch]:
    """Batches without end: tokens (B, L), lengths (B,) all L, labels (B, L) with −100 where there is no answer."""
    rng = np.random.default_rng([seed, PARTS[part]])
    while True:
        tokens, labels = TASKS[task].draw(rng, B, L, part)
        yield Batch(torch.from_numpy(tokens), torch.full((B,), L), torch.from_numpy(labels))


def make_model(task: str, kind: str, *, max_len: int = max(LENGTHS)) -> nn.Module:
    """A small Transformer: 2 pre-norm layers, 64 wide, 4 heads. It reads one way or both, as the task says."""
    config = TransformerConfig(
        vocab_size=TASKS[task].vocab_size,
        d_model=WIDTH,
        num_heads=4,
        num_encoder_layers=2,
        num_decoder_layers=2,
        dim_feedforward=128,
        dropout=0.0,
        norm_first=True,
        positional=kind,
        max_len=max_len,
    )
    return DecoderLM(config) if TASKS[task].causal else EncoderTagger(config, num_tags=config.vocab_size)


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross entropy over all tokens that have an answer."""
    return F.cross_entropy(model(batch.tokens).flatten(0, 1), batch.labels.flatten(), ignore_index=UNSCORED)


class Score(NamedTuple):
    """How well the last 16 tokens were answered."""

    accuracy: float  # 0 … 1
    bits: float  # mean −log₂ of the probability that the right answer got


@torch.no_grad()
def score(model: nn.Module, task: str, L: int, *, part: str = "test", batches: int = 4) -> Score:
    """Test a model at length L, on `batches` · 128 sequences that are the same at every call."""
    model.eval()
    hits, nats = [], []
    for batch in islice(draw_batches(task, TEST_SEED, L=L, part=part, B=128), batches):
        logits, labels = model(batch.tokens)[:, -SCORED:].flatten(0, 1), batch.labels[:, -SCORED:].flatten()
        asked = labels != UNSCORED
        hits.append((logits.argmax(dim=-1) == labels)[asked])
        nats.append(F.cross_entropy(logits, labels, ignore_index=UNSCORED, reduction="none")[asked])
    return Score(torch.cat(hits).float().mean().item(), torch.cat(nats).mean().item() / math.log(2))


def train(model: nn.Module, task: str, *, lr: float, seed: int, steps: int | None = None, L: int = TRAINED) -> dict:
    """Train in place on batches of 32. What a row of results says of it: steps, seed, …, and when it was 90 % right."""
    steps = steps or TASKS[task].steps
    dev = partial(score, task=task, L=L, part="dev", batches=1)
    every = 25
    history = fit(
        model,
        draw_batches(task, seed, L=L),
        lr=lr,
        seed=seed,
        steps=steps,
        loss=loss,
        evaluate=lambda model: dev(model).accuracy,
        evaluate_every=every,
        progress=False,
    )
    arrived = [step for step, accuracy in history.scores if accuracy >= 0.9]
    last = history.losses[-50:]
    return {
        "task": task,
        "steps": steps,
        "lr": lr,
        "seed": seed,
        "train_loss": round(sum(last) / len(last), 4),
        "steps_to_90": arrived[0] if arrived else None,
    }


def run(task: str, kind: str, *, lr: float, seed: int, steps: int | None = None, lengths=LENGTHS) -> list[dict]:
    """Train one kind of position at 32 tokens and test it at all lengths.

    A learned table has rows for the longest test from the start, which training at 32 tokens leaves as they are. It is tested
    a second time as "learned, interpolated": its first 32 rows, resized to the length.

    Returns:
        One row for each length, after two of the dev part: at the trained length and at the longest one.
    """
    seed_everything(seed)
    model = make_model(task, kind)
    facts = train(model, task, lr=lr, seed=seed, steps=steps)
    dev = [_row(kind, facts, model, L, "dev") for L in (TRAINED, max(LENGTHS))]
    rows = dev + [_row(kind, facts, model, L, "test") for L in lengths]
    if kind == "learned":
        rows += [_row("learned, interpolated", facts, stretched(model, L), L, "test") for L in lengths if L > TRAINED]
    return rows


def stretched(model: nn.Module, L: int, rows: int = TRAINED) -> nn.Module:
    """The same model, its learned table's first rows interpolated to L. It shares all other weights."""
    old = model.embedding.positions
    table = LearnedEncoding(rows, old.weight.size(1))
    with torch.no_grad():
        table.weight.copy_(old.weight[:rows])
    config = model.config
    twin = DecoderLM(config) if isinstance(model, DecoderLM) else EncoderTagger(config, config.vocab_size)
    twin.load_state_dict(model.state_dict())
    twin.embedding.positions = table.resized(L)
    return twin.eval()


def _row(kind: str, facts: dict, model: nn.Module, L: int, part: str) -> dict:
    result = score(model, facts["task"], L, part=part)
    task, rest = facts["task"], {name: value for name, value in facts.items() if name != "task"}
    shown = {"accuracy": round(result.accuracy, 4), "bits": round(result.bits, 4)}
    return {"task": task, "kind": kind, **rest, "part": part, "length": L, **shown}


def _symbols(rng: np.random.Generator, B: int, L: int) -> np.ndarray:
    tokens = 1 + rng.integers(SYMBOLS, size=(B, L))
    tokens[:, 0] = START
    return tokens


@lru_cache(maxsize=3)
def _characters(part: str) -> np.ndarray:
    """All articles of a part in one row of numbers from 1 on, in lower case."""
    articles = " ".join(" ".join(article.text.lower().split()) for article in getattr(load_bbc_news(), part))
    number = {character: 1 + i for i, character in enumerate(CHARACTERS)}
    return np.array([number.get(character, 1 + len(CHARACTERS)) for character in articles])
