"""What somebody sees who trains a small language model around an attention with a bug: losses, what it writes, what it repeats.

The task is that of `mask_trials`, for one stack in place of two: after a word of 3 to 8 letters and a colon, write the word
backwards. A letter in five is a slip, so no honest model gets below the floor. Words of a batch are padded in front.

Shapes: B words, S letters in the longest, L = 2·S + 1 tokens: padding and letters (S), colon, letters backwards (S); V tokens.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.diagnostics import record_attention
from lib.positional import SinusoidalEncoding
from lib.study import mask_trials
from lib.study.mask_trials import IGNORED, PAD, START, VOCABULARY
from lib.study.story import KINDS
from lib.study.training import fit, seed_everything

D_MODEL, HEADS, LAYERS, LONGEST, BATCH = 48, 4, 2, 8, 64


class Lines(NamedTuple):
    """Words with their reversal behind them."""

    tokens: Tensor  # (B, L) PAD, letters, START (the colon), letters backwards with slips
    labels: Tensor  # (B, L) the next token where it is to be written, IGNORED elsewhere
    clean: Tensor  # (B, S + 1) what is to be written, without slips


def make(generator: torch.Generator, lengths: Tensor) -> Lines:
    """Random words of the given lengths (B,), the longest without padding."""
    words = mask_trials.words(generator, lengths)
    S = words.source.size(1)
    place = torch.arange(S) - (S - words.lengths[:, None])  # from negative numbers in the padding to n − 1
    source = words.source.gather(1, place.clamp(min=0)).where(place >= 0, PAD)
    labels = torch.cat([torch.full_like(source, IGNORED), words.labels], dim=1)
    return Lines(torch.cat([source, words.target], dim=1), labels, words.clean)


def batches(seed: int) -> Iterator[Lines]:
    """Training batches without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield make(generator, torch.randint(3, LONGEST + 1, (BATCH,), generator=generator))


class LanguageModel(nn.Module):
    """Two pre-norm layers around one kind of attention; positions are counted from the first letter."""

    def __init__(self, kind: str):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D_MODEL)
        self.register_buffer("positions", SinusoidalEncoding(D_MODEL).table(4 * LONGEST), persistent=False)
        self.attentions = nn.ModuleList(KINDS[kind](D_MODEL, HEADS) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(D_MODEL) for _ in range(2 * LAYERS + 1))
        self.maps = nn.ModuleList(
            nn.Sequential(nn.Linear(D_MODEL, 2 * D_MODEL), nn.ReLU(), nn.Linear(2 * D_MODEL, D_MODEL)) for _ in range(LAYERS)
        )
        self.output = nn.Linear(D_MODEL, VOCABULARY)

    def forward(self, tokens: Tensor, keep: Tensor | None = None, caches: list[dict] | None = None) -> Tensor:
        """tokens (B, L) -> logits (B, L, V). With caches the tokens go on where these end; `keep` (B, S) counts them all."""
        keep = tokens != PAD if keep is None else keep
        place = (keep.cumsum(dim=1) - 1).clamp(min=0)[:, -tokens.size(1) :]
        x = self.embedding(tokens) + self.positions[place]
        for i, (attention, maps) in enumerate(zip(self.attentions, self.maps, strict=True)):
            x = x + attention(self.norms[2 * i](x), keep, None if caches is None else caches[i])
            x = x + maps(self.norms[2 * i + 1](x))
        return self.output(self.norms[-1](x))


def loss(model: LanguageModel, batch: Lines) -> Tensor:
    """Mean cross entropy of what is to be written, with the right letters before it given."""
    return F.cross_entropy(model(batch.tokens).flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def write(model: LanguageModel, batch: Lines) -> Tensor:
    """(B, S + 1) tokens that the model writes by itself behind the colon, one at a time, with a cache."""
    count = batch.clean.size(1)
    token = batch.tokens[:, : batch.tokens.size(1) - count + 1]  # up to the colon
    keep, caches, answer = token != PAD, [{} for _ in model.attentions], []
    for _ in range(count):
        token = model(token, keep, caches)[:, -1:].argmax(dim=-1)
        keep = torch.cat([keep, torch.ones_like(token, dtype=torch.bool)], dim=1)
        answer.append(token)
    return torch.cat(answer, dim=1)


def share_right(answer: Tensor, batch: Lines) -> float:
    """Share of letters and ends that are right, 0 … 1."""
    return (answer == batch.clean)[batch.clean != IGNORED].double().mean().item()


def examined(model: LanguageModel, count: int = 256) -> dict[str, float]:
    """Evaluation, without looking into the model.

    Returns:
        eval_loss and its floor; written in batches padded as in training; written_alone, words of one length only and so
        without padding; unlike, the share of tokens that differ when the same batch is written twice.
    """
    model.eval()
    generator = torch.Generator().manual_seed(10**6)
    mixed = make(generator, torch.randint(3, LONGEST + 1, (count,), generator=generator))
    alone = [make(generator, torch.full((count // 6,), length)) for length in range(3, LONGEST + 1)]
    with torch.no_grad():
        eval_loss = loss(model, mixed).item()
    once, twice = write(model, mixed), write(model, mixed)
    letters = int((mixed.clean != IGNORED).sum())
    return {
        "eval_loss": eval_loss,
        "floor": mask_trials.LETTER_ENTROPY * (letters - count) / letters,
        "written": share_right(once, mixed),
        "written_alone": sum(share_right(write(model, batch), batch) for batch in alone) / len(alone),
        "unlike": (once != twice)[mixed.clean != IGNORED].double().mean().item(),
    }


def train(kind: str, lr: float, seed: int, *, steps: int = 600, every: int = 50) -> tuple[LanguageModel, list[dict]]:
    """Train once by Adam. Every kind of one seed starts from the same weights and meets the same words.

    Returns:
        The model, and a row for every `every` steps: the step, the mean training loss since the last row, what `examined` says,
        and the number of matrices that training has not moved.
    """
    seed_everything(seed)
    model = LanguageModel(kind)
    start = {name: p.detach().clone() for name, p in model.named_parameters() if p.dim() == 2}

    def evaluate(model: LanguageModel) -> dict[str, float]:
        with torch.random.fork_rng(devices=[]):
            still = sum(torch.equal(p, start[name]) for name, p in model.named_parameters() if name in start)
            return examined(model) | {"still": still}

    history = fit(model, batches(seed), lr=lr, seed=seed, steps=steps, loss=loss, evaluate=evaluate, evaluate_every=every)
    rows = []
    for step, found in history.scores:
        rows.append({"step": step, "train_loss": sum(history.losses[step - every : step]) / every} | found)
    return model, [{name: round(x, 4) for name, x in row.items()} for row in rows]


WORD = (2, 7, 1, 8, 4)  # of the maps; its numbers are the letters


@torch.no_grad()
def attention_map(model: LanguageModel, layer: int = -1) -> Tensor:
    """(L, L) weights of one layer, mean of its heads, on a word with two blanks in front and its reversal behind."""
    tokens = torch.tensor([[PAD, PAD, *WORD, START, *reversed(WORD)]])
    with record_attention(model.eval()) as weights:
        model(tokens)
    return weights[f"attentions.{range(LAYERS)[layer]}"][0].mean(dim=0)


def map_text(weights: Tensor) -> str:
    """A map (L, L) as text of three decimals, for a file of results."""
    return " ".join(f"{x:.3f}" for x in weights.flatten().tolist())


def map_from_text(text: str) -> Tensor:
    """The map (L, L) that `map_text` wrote."""
    numbers = torch.tensor([float(x) for x in text.split()])
    return numbers.unflatten(0, (round(len(numbers) ** 0.5), -1))
