"""One training run each of the experiments on BBC News and on the look-up, for the scripts and for a chapter to repeat live."""

from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from torch import Tensor, nn

from lib.study import tasks
from lib.study.classifiers import READERS, WIDTH, Classifier, OneLayer, self_attention, trainable, word_vectors
from lib.study.data import TOPICS, Corpus, Vocabulary, batches, encode, load_bbc_news
from lib.study.training import accuracy, fit, seed_everything

VOCABULARY_SIZE = 8000
LENGTHS = (50, 100, 200, 400, 800)  # words
POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the passage: 0 at the start, 1 at the end


class Material(NamedTuple):
    """The corpus, and what is made from its training part alone."""

    corpus: Corpus
    vocabulary: Vocabulary
    vectors: Tensor  # (8000, 64)


@lru_cache(maxsize=1)
def material() -> Material:
    """Load and prepare once; later calls give the same object."""
    corpus = load_bbc_news()
    texts = [article.text for article in corpus.train]
    vocabulary = Vocabulary.from_texts(texts, max_size=VOCABULARY_SIZE)
    return Material(corpus, vocabulary, word_vectors(texts, vocabulary))


@lru_cache(maxsize=3)
def passages(part: str) -> tasks.Passages:
    """The passage task from one part of the corpus: "train", "dev" or "test"."""
    corpus, vocabulary, _ = material()
    return tasks.Passages.from_articles(getattr(corpus, part), vocabulary)


def read_passages(
    network: str,
    *,
    longest: int,
    steps: int,
    lr: float,
    seed: int,
    part: str = "test",
    lengths: tuple[int, ...] = LENGTHS,
    positions: tuple[float, ...] = POSITIONS,
) -> list[dict]:
    """Train one of READERS to find the passage, on documents up to `longest` words, and test it over length and position.

    Args:
        network: key of `classifiers.READERS`.
        longest: words of the longest training document.
        steps: of training, 32 documents each.
        lr: learning rate.
        seed: of the weights and of the training documents. The documents of the test are the same for every seed.
        part: of the corpus, "dev" or "test".
        lengths: of the documents tested, in words.
        positions: of the passage in them.

    Returns:
        One row for each length and position, with the accuracy.
    """
    seed_everything(seed)
    model = Classifier(material().vectors, READERS[network](), len(tasks.PASSAGE_TOPICS))
    history = fit(model, passages("train").batches(seed, longest), lr=lr, seed=seed, steps=steps)
    run = {"network": network, "parameters": trainable(model), "longest": longest, "steps": steps, "lr": lr, "seed": seed}
    return [
        run
        | {"train_loss": round(_last(history.losses), 4), "part": part, "length": length, "position": position}
        | {"accuracy": round(accuracy(model, batches(passages(part).examples(length, position), 64)), 4)}
        for length in lengths
        for position in positions
    ]


def project(task: str, projections: str, *, bias: bool = False, steps: int, lr: float, seed: int, part: str = "test") -> dict:
    """Train one self-attention layer with all, shared or no projections on one of TASKS, and test it.

    Args:
        task: key of TASKS.
        projections: "all", "shared" (one for query and key) or "none".
        bias: whether the projections have a bias.
        steps, lr, seed, part: as in `read_passages`.

    Returns:
        One row, with the accuracy.
    """
    seed_everything(seed)
    attention = self_attention(projections, bias=bias)
    model, train, held_out = TASKS[task](attention, seed, part)
    history = fit(model, train, lr=lr, seed=seed, steps=steps)
    return {
        "task": task,
        "projections": projections,
        "bias": bias,
        "parameters": trainable(attention),
        "steps": steps,
        "lr": lr,
        "seed": seed,
        "train_loss": round(_last(history.losses), 4),
        "part": part,
        "accuracy": round(accuracy(model, held_out), 4),
    }


class LookupNet(nn.Module):
    """The sum of the vectors of name, wanted name and value; one residual self-attention layer; a map to the wanted value."""

    def __init__(self, attention: nn.Module):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, WIDTH) for n in (tasks.NAMES, tasks.NAMES, tasks.VALUES))
        self.attention = attention
        self.head = nn.Linear(WIDTH, tasks.VALUES)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens (B, L, 3), none of them padding -> logits (B, L, values)."""
        x = sum(embed(part) for embed, part in zip(self.embeddings, tokens.unbind(-1), strict=True))  # (B, L, D)
        return self.head(x + self.attention(x)[0])


def _topics(attention: nn.Module, seed: int, part: str):
    """Whole articles, of which the first 200 words are read; five topics."""
    corpus, vocabulary, vectors = material()
    train = batches(encode(corpus.train, vocabulary), 32, shuffle=True, seed=seed, epochs=None, max_length=200)
    held_out = batches(encode(getattr(corpus, part), vocabulary), 64, max_length=200)
    return Classifier(vectors, OneLayer(attention), len(TOPICS)), train, held_out


def _passage(attention: nn.Module, seed: int, part: str):
    """Passages in business texts of up to 200 words, tested at 200 with the passage in the middle."""
    model = Classifier(material().vectors, OneLayer(attention), len(tasks.PASSAGE_TOPICS))
    held_out = passages(part).examples(length=200, position=0.5)
    return model, passages("train").batches(seed, longest=200), batches(held_out, 64)


def _lookup(attention: nn.Module, seed: int, part: str):
    """The look-up, tested on 1,280 tables of their own."""
    unseen = {"dev": 1_000_000, "test": 2_000_000}[part]
    return LookupNet(attention), tasks.lookup(seed), islice(tasks.lookup(unseen), 20)


TASKS = {"topics": _topics, "passage": _passage, "look-up": _lookup}


def _last(losses: list[float], window: int = 50) -> float:
    """Mean of the last losses."""
    return sum(losses[-window:]) / len(losses[-window:])
