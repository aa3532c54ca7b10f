"""Small networks that read a document and name its class: a bag of words, a BiLSTM, and one self-attention layer.

They differ in the reader alone. Word vectors come in front of it, made once from the training texts and kept as they are, and
one linear map behind it. The readers that learn have about 12,000 parameters each. Attention comes with all three of its
projections, with one for query and key together, or with none.

Shapes: B documents, L tokens, D width of a word vector, C classes.
"""

import math

import torch
import torch.nn.functional as F
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor, nn

from lib import masks
from lib.attention import SelfAttention, scaled_dot_product_attention
from lib.study.data import Vocabulary, tokenize

WIDTH = 64  # D
LSTM_WIDTH = 18  # of each direction: the BiLSTM has 12,096 parameters then, three projections 64 → 64 have 12,288
PROJECTIONS = ("all", "shared", "none")


def word_vectors(texts: list[str], vocabulary: Vocabulary, width: int = WIDTH) -> Tensor:
    """A vector for each word from the company it keeps: latent semantic analysis of the words × texts tf-idf matrix.

    Returns:
        (V, width), rows scaled to the norm √width so that an entry has size 1 on average; padding is the zero vector.

    Source: Deerwester et al. 1990, "Indexing by Latent Semantic Analysis".
    """
    counter = TfidfVectorizer(
        tokenizer=tokenize, lowercase=False, token_pattern=None, vocabulary=vocabulary.index, sublinear_tf=True
    )
    svd = TruncatedSVD(width, random_state=0).fit(counter.fit_transform(texts))
    vectors = torch.tensor((svd.components_ * svd.singular_values_[:, None]).T, dtype=torch.float32)
    return F.normalize(vectors, dim=1) * math.sqrt(width)


class SharedQueryKey(SelfAttention):
    """One projection for query and key: the match of i with j is that of j with i."""

    def __init__(self, d_model: int, d_k: int, d_v: int, *, bias: bool = False):
        super().__init__(d_model, d_k, d_v, bias=bias)
        self.k_proj = self.q_proj


class NoProjections(nn.Module):
    """Query, key and value are the tokens' own vectors; there is nothing to learn."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, L, D) -> output (B, L, D), weights (B, L, L)."""
        x = x[:, None]  # (B, 1, L, D): one head
        output, weights = scaled_dot_product_attention(x, x, x, mask, need_weights=True)
        return output[:, 0], weights[:, 0]


def self_attention(projections: str = "all", width: int = WIDTH, *, bias: bool = False) -> nn.Module:
    """One head of self-attention with "all" three projections, with query and key "shared", or with "none".

    Raises:
        ValueError: another name; a bias without a projection to add it to.
    """
    if projections == "all":
        return SelfAttention(width, width, width, bias=bias)
    if projections == "shared":
        return SharedQueryKey(width, width, width, bias=bias)
    if projections == "none" and not bias:
        return NoProjections()
    raise ValueError(
        f"projections must be one of {', '.join(PROJECTIONS)}, the last without bias, got {projections!r}, {bias=}."
    )


class Bag(nn.Module):
    """The mean of the word vectors. Knows no order and learns nothing: the baseline."""

    width = WIDTH

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, D) -> (B, D)."""
        return mean_pool(x, lengths)


class BiLSTM(nn.Module):
    """A recurrent net in both directions, read at the two "final" states or as the "mean" over all words.

    The forget gates start at 1, so that the net remembers before it has learned to (Jozefowicz et al. 2015, section 2.2).
    """

    def __init__(self, read: str, hidden: int = LSTM_WIDTH):
        super().__init__()
        self.read, self.width = read, 2 * hidden
        self.lstm = nn.LSTM(WIDTH, hidden, batch_first=True, bidirectional=True)
        for name, bias in self.lstm.named_parameters():
            if name.startswith("bias_ih"):
                nn.init.ones_(bias.data[hidden : 2 * hidden])  # the order is input, forget, cell, output

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, D) -> (B, 2·hidden)."""
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, (final, _) = self.lstm(packed)
        if self.read == "final":
            return final.transpose(0, 1).flatten(1)  # (2, B, hidden) -> (B, 2·hidden)
        return mean_pool(nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0], lengths)


class OneLayer(nn.Module):
    """Word vectors plus what one self-attention layer adds to them (a residual layer), as the mean over all words."""

    width = WIDTH

    def __init__(self, attention: nn.Module, positions: bool = False):
        super().__init__()
        self.attention, self.positions = attention, positions

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, D) -> (B, D)."""
        L = x.size(1)
        if self.positions:
            x = x + sinusoids(L, x.size(2)).to(x)
        mask = masks.padding(lengths, L) if (lengths < L).any() else None
        return mean_pool(x + self.attention(x, mask)[0], lengths)


class Classifier(nn.Module):
    """Word vectors that stay as they are, a reader, and a linear map to the classes."""

    def __init__(self, vectors: Tensor, reader: nn.Module, num_classes: int):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(vectors, freeze=True, padding_idx=Vocabulary.PAD)
        self.reader = reader
        self.head = nn.Linear(reader.width, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens (B, L), lengths (B,) -> logits (B, C)."""
        return self.head(self.reader(self.embedding(tokens), lengths))


READERS = {
    "bag of words": Bag,
    "BiLSTM, final states": lambda: BiLSTM("final"),
    "BiLSTM, mean": lambda: BiLSTM("mean"),
    "attention": lambda: OneLayer(self_attention()),
    "attention, positions": lambda: OneLayer(self_attention(), positions=True),
}


def mean_pool(x: Tensor, lengths: Tensor) -> Tensor:
    """Mean over the real tokens of each document: (B, L, D) -> (B, D)."""
    real = torch.arange(x.size(1), device=x.device) < lengths[:, None]  # (B, L)
    return (x * real[..., None]).sum(dim=1) / lengths[:, None]


def sinusoids(L: int, width: int) -> Tensor:
    """(L, width) sines and cosines of the position, side by side, in wave lengths from 2π to 2π · 10,000.

    Source: Vaswani et al. 2017, section 3.5. The width must be even.
    """
    rates = 10_000 ** (-torch.arange(0, width, 2) / width)  # (width / 2,)
    angles = torch.arange(L)[:, None] * rates  # (L, width / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def trainable(model: nn.Module) -> int:
    """Number of parameters that training changes."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
