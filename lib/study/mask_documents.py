"""Short news texts of unequal length, read by an encoder with the padding mask and without.

The texts are the first 8 to 64 words of BBC News articles. Shapes: B texts, L words in the longest of them.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib import masks
from lib.study.data import TOPICS, Batch, Example, Vocabulary, batches, encode, load_bbc_news
from lib.study.training import fit, seed_everything
from lib.transformer import EncoderClassifier, TransformerConfig

SHORTEST, LONGEST = 8, 64  # words
VOCABULARY_SIZE = 4000
SIZES = {"d_model": 32, "num_heads": 2, "num_encoder_layers": 1, "dim_feedforward": 64, "dropout": 0.0}


@lru_cache(maxsize=1)
def _corpus() -> tuple:
    corpus = load_bbc_news()
    return corpus, Vocabulary.from_texts([article.text for article in corpus.train], max_size=VOCABULARY_SIZE)


@lru_cache(maxsize=3)
def texts(part: str) -> list[Example]:
    """The openings of one part of the corpus, "train", "dev" or "test", each 8 to 64 words long, the same at every call."""
    corpus, vocabulary = _corpus()
    rng = np.random.default_rng(["train", "dev", "test"].index(part))
    examples = encode(getattr(corpus, part), vocabulary)
    return [Example(tokens[: rng.integers(SHORTEST, LONGEST + 1)], label) for tokens, label in examples]


def build(seed: int) -> EncoderClassifier:
    """The untrained encoder of one layer, width 32, without dropout."""
    seed_everything(seed)
    return EncoderClassifier(TransformerConfig(vocab_size=VOCABULARY_SIZE, **SIZES), num_classes=len(TOPICS))


def mask_of(batch: Batch, masked: bool) -> Tensor | None:
    """The padding mask of a batch, or none."""
    return masks.padding(batch.lengths, batch.tokens.size(1)) if masked else None


def train(masked: bool, *, lr: float, seed: int, steps: int) -> EncoderClassifier:
    """Train with the padding mask or without, on batches of 32 texts, each batch padded to its longest."""
    model = build(seed)
    stream = batches(texts("train"), 32, shuffle=True, seed=seed, epochs=None)
    fit(
        model,
        stream,
        lr=lr,
        seed=seed,
        steps=steps,
        loss=lambda m, b: F.cross_entropy(m(b.tokens, mask_of(b, masked)), b.labels),
    )
    return model


def padded(batch: Batch, more: int, content: str = "padding") -> Batch:
    """The same texts with `more` further columns of padding, which holds the padding token or, as "words", random words."""
    B, L = batch.tokens.shape
    tokens = torch.full((B, L + more), Vocabulary.PAD)
    if content == "words":
        tokens = torch.randint(2, VOCABULARY_SIZE, (B, L + more), generator=torch.Generator().manual_seed(L))
    real = torch.arange(L + more) < batch.lengths[:, None]
    tokens[real] = batch.tokens[torch.arange(L) < batch.lengths[:, None]]
    return batch._replace(tokens=tokens)


def forgetting(model: EncoderClassifier, part: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The model as a function of tokens (B, L) and padding mask (B, 1, 1, L) that loses the mask in one part of it.

    Args:
        model: gives (B, 5) logits.
        part: "attention" or "mean", the mean over all words at the end. The other part keeps its mask.
    """

    def read(tokens: Tensor, mask: Tensor) -> Tensor:
        x = model.encoder(model.embedding(tokens), None if part == "attention" else mask)  # (B, L, d_model)
        real = mask[:, 0, 0, :, None] if part == "attention" else torch.ones(*tokens.shape, 1, dtype=torch.bool)  # (B, L, 1)
        return model.output(x.masked_fill(~real, 0.0).sum(dim=1) / real.sum(dim=1))

    return read


@torch.no_grad()
def accuracy(model: EncoderClassifier, masked: bool, *, part: str, more: int = 0, content: str = "padding") -> float:
    """Share of the texts of one part that get the right topic, with `more` padding than a batch of 64 needs."""
    right = [
        (model(wide.tokens, mask_of(wide, masked)).argmax(dim=-1) == wide.labels)
        for wide in (padded(batch, more, content) for batch in batches(texts(part), 64))
    ]
    return torch.cat(right).double().mean().item()


@torch.no_grad()
def movement(
    model: EncoderClassifier, masked: bool, *, part: str, more: int, content: str = "padding", count: int = 64
) -> float:
    """How far the encoder's outputs at real words move, against each text alone: root mean square, over that of the outputs."""
    [batch] = batches(texts(part)[:count], count)
    wide = padded(batch, more, content)
    together = _outputs(model, wide.tokens, mask_of(wide, masked))
    moved = size = 0.0
    for b, n in enumerate(batch.lengths.tolist()):
        alone = _outputs(model, batch.tokens[b : b + 1, :n], None)[0]
        moved += (together[b, :n] - alone).square().sum().item()
        size += alone.square().sum().item()
    return (moved / size) ** 0.5


def _outputs(model: EncoderClassifier, tokens: Tensor, mask: Tensor | None) -> Tensor:
    return model.encoder(model.embedding(tokens), mask)  # (B, L, d_model)
