"""Residual and layer norm taken away, and small models that write words with what is left: how deep do they train?

The five arrangements of a sub-layer, f for attention or the feed-forward network:

    post-norm     norm(x + f(x))       the paper's
    pre-norm      x + f(norm(x))       and a norm behind the last layer
    no residual   norm(f(x))
    no norm       x + f(x)
    neither       f(x)

and, to tell the norms in the layers from the one behind them, "last norm": x + f(x), with one norm behind the last layer.

Shapes: B words in the batch, L letters in each; D width of a token; V letters and special symbols.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.layers import EncoderLayer
from lib.stacks import Stack, TransformerConfig
from lib.study.pronunciation import LETTERS, Entry, load_cmudict
from lib.transformer import DecoderLM

ARRANGEMENTS = ("post-norm", "pre-norm", "no residual", "no norm", "neither")
LAST_NORM = "last norm"  # no norm in the layers, and one behind the last, as pre-norm has
L, WIDTH, HEADS, INSIDE = 7, 32, 4, 64  # letters of a word, D, heads, width inside the feed-forward network
BATCH = 32  # B
STEPS = 200
UNIFORM = math.log2(26)  # bits per letter of a guess that knows nothing; also what a broken run is given


class AblatedLayer(EncoderLayer):
    """An `EncoderLayer` of any of the arrangements, with the same random start in all of them.

    Args:
        d_model, num_heads, dim_feedforward, dropout, options: those of `EncoderLayer`, bar `norm_first`.
        arrangement: one of ARRANGEMENTS, or LAST_NORM, whose layers are those of "no norm".

    Raises:
        ValueError: an unknown arrangement; and what `EncoderLayer` raises.
    """

    def __init__(
        self, d_model: int, num_heads: int, dim_feedforward: int, dropout: float = 0.0, *, arrangement: str, **options
    ):
        if arrangement not in (*ARRANGEMENTS, LAST_NORM):
            raise ValueError(f"arrangement must be one of {', '.join((*ARRANGEMENTS, LAST_NORM))}, got {arrangement!r}.")
        super().__init__(d_model, num_heads, dim_feedforward, dropout, norm_first=arrangement == "pre-norm", **options)
        self.residual = arrangement not in ("no residual", "neither")
        if arrangement in ("no norm", "neither", LAST_NORM):
            self.norm1, self.norm2 = nn.Identity(), nn.Identity()

    def _beside(self, x: Tensor, norm: nn.Module, sublayer) -> Tensor:
        if self.residual:
            return super()._beside(x, norm, sublayer)
        return norm(self.dropout(sublayer(x)))


def new_writer(arrangement: str, depth: int, seed: int) -> DecoderLM:
    """A model that writes words letter by letter. One seed gives all arrangements of a depth the same random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = TransformerConfig(
            vocab_size=len(LETTERS), d_model=WIDTH, num_heads=HEADS, num_decoder_layers=1, dim_feedforward=INSIDE, dropout=0.0
        )
        model = DecoderLM(config)
        layers = [AblatedLayer(WIDTH, HEADS, INSIDE, arrangement=arrangement) for _ in range(depth)]
        behind = nn.LayerNorm(WIDTH) if arrangement in ("pre-norm", LAST_NORM) else None
        model.decoder = Stack(layers, behind, is_causal=True)
    return model


@lru_cache(maxsize=1)
def words() -> dict[str, Tensor]:
    """CMUdict's words of seven letters by part, train, dev and test, each (words, L); read once."""
    lexicon = load_cmudict()
    return {part: _rows(getattr(lexicon, part)) for part in ("train", "dev", "test")}


def _rows(entries: Sequence[Entry]) -> Tensor:
    return torch.tensor([LETTERS.encode(entry.spelling)[:-1] for entry in entries if len(entry.spelling) == L])


def word_batches(seed: int) -> Iterator[Tensor]:
    """Batches (B, L) of training words without end, from a generator of their own."""
    rows, generator = words()["train"], torch.Generator().manual_seed(seed)
    while True:
        yield rows[torch.randint(len(rows), (BATCH,), generator=generator)]


def letter_loss(model: DecoderLM, batch: Tensor) -> Tensor:
    """Mean cross entropy, in nats, of each letter of the words (B, L), given those before it."""
    begin = torch.full_like(batch[:, :1], LETTERS.BEGIN)
    logits = model(torch.cat([begin, batch[:, :-1]], dim=1))  # (B, L, V)
    return F.cross_entropy(logits.flatten(0, 1), batch.flatten())


@torch.no_grad()
def bits(model: DecoderLM, part: str) -> float:
    """Bits per letter on the words of a part; `UNIFORM` where the model does worse or gives no finite number."""
    value = letter_loss(model, words()[part]).item() / math.log(2)
    return value if value < UNIFORM else UNIFORM


@lru_cache(maxsize=3)
def frequency_bits(part: str) -> float:
    """Bits per letter of a guess that knows how often each letter is in the training words, and nothing else."""
    counts = torch.bincount(words()["train"].flatten(), minlength=len(LETTERS)).double()
    return -(counts / counts.sum())[words()[part]].log2().mean().item()


def train_writer(
    arrangement: str, depth: int, lr: float, seed: int, *, warmup: int = 0, steps: int = STEPS
) -> tuple[DecoderLM, list[float]]:
    """Train with Adam at a constant rate. Nothing is clipped, since that would hide what is measured.

    Args:
        arrangement, depth: of the model.
        lr: learning rate.
        seed: of weights and words, both the same for all arrangements.
        warmup: steps in which the rate rises in a line from lr / warmup to lr.
        steps: of training; fewer if the loss becomes NaN or infinite.

    Returns:
        The model, and the loss of each step in bits per letter.
    """
    model = new_writer(arrangement, depth, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(1, warmup)))
    losses = []
    for _, batch in zip(range(steps), word_batches(seed), strict=False):
        loss = letter_loss(model, batch)
        losses.append(loss.item() / math.log(2))
        if not loss.isfinite():
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model, losses


def trial(arrangement: str, depth: int, lr: float, seed: int, *, warmup: int = 0, steps: int = STEPS) -> dict:
    """One row of experiments/norms.csv: train, then score on dev and on test words."""
    model, losses = train_writer(arrangement, depth, lr, seed, warmup=warmup, steps=steps)
    setting = {"arrangement": arrangement, "depth": depth, "lr": lr, "warmup": warmup, "steps": steps, "seed": seed}
    scores = {f"{part}_bits": round(bits(model, part), 4) for part in ("dev", "test")}
    return setting | {"steps_done": len(losses), "train_bits": round(_last(losses), 4)} | scores


def _last(losses: Sequence[float], number: int = 20) -> float:
    mean = sum(losses[-number:]) / len(losses[-number:])
    return mean if mean < UNIFORM else UNIFORM


def at_the_start(arrangement: str, depth: int, seed: int) -> dict[str, Tensor]:
    """What a writer is like before any training, on one batch, layer by layer.

    Returns:
        "bits": (), the loss, per letter. "gradient": (depth,), the norm of the loss's gradient with respect to what goes into
        each layer. "of weights": (depth,), the same with respect to the second matrix of each feed-forward network. "alike":
        (depth + 1,), the mean cosine between the vectors of two tokens, for what goes into each layer and what comes out of
        the last: 1 if all tokens are one.
    """
    model, vectors = new_writer(arrangement, depth, seed), []
    for layer in model.decoder.layers:
        layer.register_forward_pre_hook(lambda _, args: vectors.append(args[0]))
    layer.register_forward_hook(lambda _, args, output: vectors.append(output))
    loss = letter_loss(model, next(word_batches(seed)))
    weights = [layer.feed_forward.linear2.weight for layer in model.decoder.layers]
    norms = torch.stack([gradient.norm() for gradient in torch.autograd.grad(loss, [*vectors[:-1], *weights])])
    alike = torch.stack([mean_cosine(x.detach().flatten(0, 1)) for x in vectors])
    per_letter = loss.detach() / math.log(2)
    return {"bits": per_letter, "gradient": norms[:depth], "of weights": norms[depth:], "alike": alike}


def mean_cosine(vectors: Tensor) -> Tensor:
    """Mean cosine between two different rows of (N, D), N > 1."""
    units, N = F.normalize(vectors, dim=-1), len(vectors)
    return (units.sum(dim=0).square().sum() - N) / (N * (N - 1))
