"""A small model that guesses hidden letters in phrases of BBC News, trained within half a minute, to look at its heads.

Shapes: B phrases in the batch, all of L tokens, the two markers included; D width of a token.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.multihead import recorded_weights
from lib.stacks import Embedding, Encoder, TransformerConfig
from lib.study.data import Article, Batch, load_bbc_news, tokenize
from lib.study.training import History, fit, seed_everything

MARKERS = ("hidden", "start", "end")
HIDDEN, START, END = range(3)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789' "
NOT_ASKED = -100  # label of a letter that is not to be guessed
SHORTEST, LONGEST = 20, 32  # letters of a phrase, spaces included
LETTERS_PER_BATCH = 1500
SHARE = 0.2  # of the letters are hidden
STEPS, RATE = 400, 5e-3  # of the model that the chapter looks at
WIDTH = 64  # D


def phrases(articles: Iterable[Article]) -> Iterator[str]:
    """The articles cut into runs of whole words, each as long as 32 letters allow, in lower case without punctuation."""
    for article in articles:
        phrase = ""
        for word in [*tokenize(article.text), ""]:
            longer = f"{phrase} {word}".strip()
            if word and len(longer) <= LONGEST:
                phrase = longer
                continue
            if SHORTEST <= len(phrase) <= LONGEST:
                yield phrase
            phrase = word


def encode(phrase: str) -> list[int]:
    """Numbers of the letters between the markers of start and end.

    Raises:
        ValueError: a sign that is neither a small letter, a digit, an apostrophe nor a space.
    """
    strange = sorted(set(phrase) - set(LETTERS))
    if strange:
        raise ValueError(f"the model knows small letters, digits, ' and the space, not {' '.join(strange)!r} in {phrase!r}.")
    return [START, *(LETTERS.index(letter) + len(MARKERS) for letter in phrase), END]


class Material(NamedTuple):
    """Phrases by length: L -> (number of phrases, L) tokens."""

    train: dict[int, Tensor]
    dev: dict[int, Tensor]
    test: dict[int, Tensor]


@lru_cache(maxsize=1)
def material() -> Material:
    """Read and prepare once; later calls give the same object."""
    corpus = load_bbc_news()
    return Material(*(_by_length(phrases(part)) for part in (corpus.train[::2], corpus.dev, corpus.test)))


def _by_length(found: Iterable[str]) -> dict[int, Tensor]:
    rows: dict[int, list[list[int]]] = {}
    for phrase in found:
        rows.setdefault(len(phrase) + 2, []).append(encode(phrase))
    return {length: torch.tensor(rows[length]) for length in sorted(rows)}


class LetterGuesser(nn.Module):
    """A Transformer encoder with rotary positions that gives, at each token, the logits of the letter that stands there.

    Args:
        num_heads, num_layers: of the encoder; the width is 64, that of its feed-forward networks 128.
    """

    def __init__(self, num_heads: int = 4, num_layers: int = 2):
        super().__init__()
        size = len(MARKERS) + len(LETTERS)
        config = TransformerConfig(
            vocab_size=size,
            d_model=WIDTH,
            num_heads=num_heads,
            num_encoder_layers=num_layers,
            dim_feedforward=2 * WIDTH,
            dropout=0.0,
            norm_first=True,
            positional="rotary",
        )
        self.embedding, self.encoder, self.output = Embedding(config, size), Encoder(config), nn.Linear(WIDTH, size)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L), none of them padding -> (B, L, D), what `output` takes."""
        return self.encoder(self.embedding(tokens))


def hidden_batches(by_length: dict[int, Tensor], seed: int) -> Iterator[Batch]:
    """Batches without end: phrases of one length, a fifth of the letters hidden, one letter at least.

    Yields:
        Batch of tokens (B, L), lengths (B,) all L, labels (B, L): the hidden letter, or `NOT_ASKED`.
    """
    rng = np.random.default_rng(seed)
    lengths = list(by_length)
    sizes = np.array([rows.numel() for rows in by_length.values()], dtype=float)
    while True:
        rows = by_length[lengths[rng.choice(len(lengths), p=sizes / sizes.sum())]]
        chosen = rows[torch.from_numpy(rng.integers(len(rows), size=max(1, LETTERS_PER_BATCH // rows.size(1))))]
        hidden = torch.from_numpy(rng.random(chosen.shape) < SHARE)
        hidden[:, 1] |= ~hidden[:, 1:-1].any(dim=1)  # a phrase without a hidden letter has nothing to ask
        hidden[:, [0, -1]] = False
        labels = chosen.masked_fill(~hidden, NOT_ASKED)
        yield Batch(chosen.masked_fill(hidden, HIDDEN), torch.full((len(chosen),), chosen.size(1)), labels)


def guesses(model: LetterGuesser, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits of the hidden letters, (N, letters), and the letters themselves, (N,)."""
    asked = batch.labels != NOT_ASKED
    return model.output(model(batch.tokens)[asked]), batch.labels[asked]


def train_guesser(seed: int, *, steps: int = STEPS, lr: float = RATE, **sizes) -> tuple[LetterGuesser, History]:
    """A model trained on phrases of the training part."""
    model = new_guesser(seed, **sizes)
    stream = hidden_batches(material().train, seed)
    return model, fit(model, stream, lr=lr, seed=seed, steps=steps, loss=lambda m, batch: F.cross_entropy(*guesses(m, batch)))


def new_guesser(seed: int, **sizes) -> LetterGuesser:
    """The same model before any training."""
    seed_everything(seed)
    return LetterGuesser(**sizes).eval()


@torch.no_grad()
def score(model: LetterGuesser, part: str = "dev", batches: int = 30) -> tuple[float, float]:
    """Share of hidden letters guessed right, and the loss in nats, on phrases of a part; the same ones at each call."""
    found = [guesses(model, batch) for batch in islice(hidden_batches(getattr(material(), part), seed=1_000_000), batches)]
    logits, wanted = torch.cat([one for one, _ in found]), torch.cat([one for _, one in found])
    return (logits.argmax(dim=-1) == wanted).float().mean().item(), F.cross_entropy(logits, wanted).item()


def whole_phrases(part: str = "dev", each: int = 60) -> list[Tensor]:
    """Phrases with nothing hidden, at most so many of each length, for `heads.profile`."""
    return [rows[:each] for rows in getattr(material(), part).values()]


@torch.no_grad()
def weights_of(model: LetterGuesser, phrase: str) -> list[Tensor]:
    """For each layer the weights of all its heads over a phrase, (H, L, L)."""
    with recorded_weights(model) as weights:
        model(torch.tensor([encode(phrase)]))
    return [found[0] for found in weights.values()]
