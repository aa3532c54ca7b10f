"""Train a Transformer to pronounce, and let it: the loss, the schedule, a loop that survives interruptions, and transcription.

Shapes: B words in the batch, S letters with their end, L phonemes with their end, V phonemes and special symbols.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from lib import masks
from lib.generation import generate
from lib.study.checkpoints import load_run, save_run
from lib.study.data import rectangle
from lib.study.pronunciation import LETTERS, PHONEMES, Entry, Pair, PairBatch, batches
from lib.study.scores import ErrorRates, error_rates
from lib.study.training import bar, seed_everything, to_device
from lib.transformer import Transformer


@dataclass(frozen=True)
class Recipe:
    """How to train. What a training is, is decided by this, the model and the pairs alone."""

    epochs: int
    lr: float = 1e-2  # the highest, of the layers' matrices (Muon)
    lr_rest: float = 3e-3  # the highest, of embeddings, norms and biases (AdamW)
    warmup: float = 0.05  # share of the steps in which the learning rates rise
    max_tokens: int = 8192  # in a batch, about 512 words
    label_smoothing: float = 0.1
    weight_decay: float = 0.01  # of matrices; the rest has none
    clip: float = 1.0  # of the gradient's norm
    seed: int = 0
    precision: str = "auto"  # of matrix products in training: "float32", "bfloat16", or the faster of them here

    def rate(self, done: float) -> float:
        """Share of the highest learning rate after a share `done` of the steps: up in a line, then down to 0 in a line."""
        return min(done / self.warmup if self.warmup else 1.0, (1 - done) / (1 - self.warmup))


def train(
    model: Transformer,
    examples: Sequence[Pair],
    recipe: Recipe,
    *,
    run: Path | str | None = None,
    evaluate: Callable[[Transformer], dict[str, float]] | None = None,
    progress: bool = True,
    device: torch.device | str | None = None,
) -> list[dict[str, Any]]:
    """Train the model in place, and leave it in evaluation mode.

    Args:
        model: from `LETTERS` to `PHONEMES`.
        examples: pairs of the training part.
        recipe: how.
        run: file of the training's state, written after each epoch. If it is there, the training goes on from it and ends with
            the same weights as one that was never interrupted.
        evaluate: model -> figures for the row of an epoch, in evaluation mode.
        progress: a bar for each epoch, in a terminal or a live notebook.
        device: move the model there; to where it is when not given.

    Returns:
        A row for each epoch, those of before an interruption included: epoch, loss (nats per phoneme, label smoothing
        included), seconds, the precision of the products, and what `evaluate` gave.

    Raises:
        FloatingPointError: the loss became NaN or infinite.
        ValueError: a `run` of another recipe or model, or a damaged one.
    """
    device = next(model.parameters()).device if device is None else torch.device(device)
    model.to(device)
    steps = sum(1 for _ in batches(examples, recipe.max_tokens))  # lengths alone decide it: the same in every epoch
    parts = {"model": model} | _optimizers(model, recipe, steps)
    settings = asdict(recipe) | {"model": asdict(model.config), "pairs": len(examples)}
    seed_everything(recipe.seed)
    first, rows = (0, []) if run is None else load_run(run, settings, parts)
    precision = mixed_precision(device) if recipe.precision == "auto" else getattr(torch, recipe.precision)
    for epoch in range(first, recipe.epochs):
        start, losses = time.perf_counter(), []
        model.train()
        passes = batches(examples, recipe.max_tokens, seed=(recipe.seed, epoch))
        for batch in bar(passes, steps, progress, f"epoch {epoch + 1}/{recipe.epochs}"):
            losses.append(_step(model, batch, parts, recipe, device, precision))
        loss = torch.stack(losses).mean().item()
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} in epoch {epoch + 1}: try a learning rate below {recipe.lr:g}.")
        row = {"epoch": epoch + 1, "loss": round(loss, 4), "seconds": round(time.perf_counter() - start, 1)}
        row["precision"] = str(precision).removeprefix("torch.")
        rows.append(row | ({} if evaluate is None else evaluate(model.eval())))
        if run is not None:
            save_run(run, epoch + 1, settings, rows, parts)
    model.eval()
    return rows


def translation_loss(model: Transformer, batch: PairBatch, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross entropy of each next phoneme, given the spelling and the right phonemes before it; padding does not count."""
    logits = model(batch.source, batch.inputs, source_mask(batch.source, batch.source_lengths))  # (B, L, V)
    return F.cross_entropy(
        logits.float().flatten(0, 1),
        batch.labels.flatten(),
        ignore_index=PHONEMES.PAD,
        label_smoothing=label_smoothing,
    )


def source_mask(source: Tensor, lengths: Tensor) -> Tensor | None:
    """(B, 1, 1, S), True = a letter; None where no word is padded, since attention without a mask is faster."""
    return None if bool((lengths == source.size(1)).all()) else masks.padding(lengths.to(source.device), source.size(1))


def transcribe(
    model: Transformer, spellings: Sequence[str], *, strategy: str = "greedy", at_once: int = 512, **options
) -> list[tuple[str, ...]]:
    """Let the model pronounce words.

    Args:
        model: from `LETTERS` to `PHONEMES`; put into evaluation mode for this.
        spellings: words of the letters a–z.
        strategy: "greedy" or "beam".
        at_once: words in a batch.
        options: further ones of `lib.generation.generate`.

    Returns:
        The phonemes of each word. A word that finds no end stops ten phonemes behind its number of letters.
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    order = sorted(range(len(spellings)), key=lambda i: len(spellings[i]))
    found: list[tuple[str, ...]] = [()] * len(spellings)
    for start in range(0, len(order), at_once):
        chosen = order[start : start + at_once]
        rows = [LETTERS.encode(spellings[i]) for i in chosen]
        source = rectangle(rows, LETTERS.PAD).to(device)
        lengths = torch.tensor([len(row) for row in rows])
        ends = {"bos_id": PHONEMES.BEGIN, "eos_id": PHONEMES.END, "pad_id": PHONEMES.PAD}
        mask = source_mask(source, lengths)
        tokens = generate(model, source, source.size(1) + 10, mask=mask, strategy=strategy, **ends, **options)
        for i, row in zip(chosen, tokens.tolist(), strict=True):
            found[i] = PHONEMES.decode(row)
    model.train(was_training)
    return found


def evaluate(model: Transformer, entries: Sequence[Entry], **options) -> ErrorRates:
    """Word and phoneme error rates of the model's transcriptions, each against the closest pronunciation of the entry."""
    predictions = transcribe(model, [entry.spelling for entry in entries], **options)
    return error_rates(predictions, [entry.sounds for entry in entries])


def mixed_precision(device: torch.device) -> torch.dtype:
    """bfloat16 where this device multiplies it faster than float32, else float32. A CPU is asked, which takes a moment."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    if device.type != "cpu":
        return torch.float32
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.ones(2048, 256, dtype=dtype), torch.ones(256, 256, dtype=dtype)
        times = []
        for _ in range(4):
            start = time.perf_counter()
            a @ b
            times.append(time.perf_counter() - start)
        seconds[dtype] = min(times)
    return min(seconds, key=seconds.get)


def _step(model, batch, parts, recipe, device, precision) -> Tensor:
    """One step; the loss stays on the device, so that a GPU need not wait for it."""
    lengths = batch.source_lengths  # on the CPU, where a look at them costs nothing
    batch = to_device(batch, device)._replace(source_lengths=lengths)
    autocast = torch.autocast(device.type, precision) if precision != torch.float32 else nullcontext()
    with autocast:
        loss = translation_loss(model, batch, recipe.label_smoothing)
    model.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    for name in ("muon", "adam", "muon schedule", "adam schedule"):
        parts[name].step()
    return loss.detach()


def _optimizers(model: nn.Module, recipe: Recipe, steps: int) -> dict[str, Any]:
    """Muon for the matrices inside the layers, AdamW for the rest, and the schedule of each.

    Muon makes every step an orthogonal matrix, which moves all directions alike. In a trial (2 + 2 layers of 96, 160 steps of
    about 190 words) the dev loss was 0.64 with it, and 0.80 with the best of three rates of AdamW alone. Its rate is scaled so
    that a step is as large as one of AdamW's at that rate.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al. 2025, "Muon is Scalable
    for LLM Training", section 2.2, for the scale.
    """
    inside = {name for name, value in model.named_parameters() if value.dim() == 2 and ".layers." in name}
    matrices = [value for name, value in model.named_parameters() if name in inside]
    rest = [value for name, value in model.named_parameters() if name not in inside]
    optimizers = {
        "muon": torch.optim.Muon(matrices, recipe.lr, recipe.weight_decay, adjust_lr_fn="match_rms_adamw"),
        "adam": torch.optim.AdamW(rest, recipe.lr_rest, betas=(0.9, 0.98), weight_decay=0.0),
    }

    def rate(step: int) -> float:
        return recipe.rate((step + 1) / (recipe.epochs * steps + 1))

    return optimizers | {f"{name} schedule": LambdaLR(optimizer, rate) for name, optimizer in optimizers.items()}
