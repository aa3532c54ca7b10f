"""Layers in a stack, and what stands before it: the sizes of a model, its embeddings, its encoder and its decoder.

Shapes: B sequences, L tokens, S keys (the tokens of a cache included) or tokens of the memory; d_model the width of a token.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lib import masks
from lib.cache import DecoderCache
from lib.layers import DecoderLayer, EncoderLayer
from lib.multihead import with_causal
from lib.positional import LearnedEncoding, RotaryEncoding, SinusoidalEncoding, alibi_bias

POSITIONAL = ("sinusoidal", "learned", "rotary", "alibi", "none")


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and choices of a model. The defaults are the paper's base model; names are those of torch's modules.

    Args:
        vocab_size: number of different tokens, V; in a `Transformer`, of the source.
        target_vocab_size: number of different target tokens; `vocab_size`, and then one shared vocabulary, when not given.
        d_model, num_heads, dim_feedforward, dropout, activation, norm_first, layer_norm_eps, bias, attention_dropout,
            num_kv_heads: of each layer, see `EncoderLayer`.
        num_encoder_layers, num_decoder_layers: numbers of layers. A `DecoderLM` has the second.
        final_norm: whether a norm follows the last layer; `norm_first` when not given. `torch.nn.Transformer` always has it.
        positional: "sinusoidal", "learned" (both added to the embeddings), "rotary", "alibi" (both in each self-attention) or
            "none".
        max_len: number of positions of a learned table; the others have no limit.
        base: of sinusoidal and rotary encodings.
        tie_embeddings: one table of embeddings for source, target and output (for target and output alone where vocabularies
            differ). Source: Press & Wolf 2017, "Using the Output Embedding to Improve Language Models".
        scale_embeddings: multiply embeddings by √d_model. They start with deviation 1/√d_model, as a tied output needs them for
            logits of deviation 1. Without the factor they would be √(d_model / 2) times smaller than the sinusoids added to
            them: a model of 512 would see positions 16 times louder than words. Source: Vaswani et al. 2017, section 3.4.
        checkpointing: compute each layer again for its gradient and keep less in memory, see `Stack`.
        skip_padding: of an encoder or a `DecoderLM`, spend nothing on padding, see `Stack`.

    Raises:
        ValueError: an unknown kind of position, or a number below 1.
    """

    vocab_size: int = 37000
    target_vocab_size: int | None = None
    d_model: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dim_feedforward: int = 2048
    dropout: float = 0.1
    activation: str = "relu"
    norm_first: bool = False
    layer_norm_eps: float = 1e-5
    bias: bool = True
    attention_dropout: float | None = None
    num_kv_heads: int | None = None
    final_norm: bool | None = None
    positional: str = "sinusoidal"
    max_len: int = 512
    base: float = 10000
    tie_embeddings: bool = True
    scale_embeddings: bool = True
    checkpointing: bool = False
    skip_padding: bool = False

    def __post_init__(self):
        if self.positional not in POSITIONAL:
            raise ValueError(f"positional must be one of {', '.join(POSITIONAL)}, got {self.positional!r}.")
        sizes = ("vocab_size", "target_vocab_size", "d_model", "num_encoder_layers", "num_decoder_layers")
        for name in (*sizes, "num_heads", "num_kv_heads", "dim_feedforward", "max_len"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise ValueError(f"{name} is at least 1, got {number}.")


class Embedding(nn.Module):
    """A vector for each token, times √d_model, with its position added where positions are added at all, then dropout."""

    def __init__(self, config: TransformerConfig, vocab_size: int):
        super().__init__()
        d_model = config.d_model
        self.tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.tokens.weight, std=d_model**-0.5)
        self.scale = d_model**0.5 if config.scale_embeddings else 1.0
        self.positions = None
        if config.positional == "sinusoidal":
            self.positions = SinusoidalEncoding(d_model, config.base)
        elif config.positional == "learned":
            self.positions = LearnedEncoding(config.max_len, d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor, *, offset: int = 0, positions: Tensor | None = None) -> Tensor:
        """(B, L) integers -> (B, L, d_model). Offset and positions as in `lib.positional`."""
        if tokens.dim() != 2:
            hint = " For a single sequence use tokens[None]." if tokens.dim() == 1 else ""
            raise ValueError(f"tokens must be (B, L), got shape {tuple(tokens.shape)}.{hint}")
        x = self.tokens(tokens) * self.scale
        if self.positions is not None:
            x = self.positions(x, offset=offset, positions=positions)
        return self.dropout(x)


class Stack(nn.Module):
    """Layers one after another, each with its own random start, and a last norm where the layers leave that out.

    What all layers have in common is made once for all of them: the mask that joins the caller's with causality and ALiBi.

    Args:
        layers: `EncoderLayer`s or `DecoderLayer`s. Build each on its own: a copied layer starts as the same layer.
        norm: the last norm, or None. Pre-norm layers need one, since each passes its input on as it is.
        is_causal: whether self-attention looks at no later token, as in a decoder.
        alibi: number of heads to add ALiBi for, or None. The layers then have none of their own.
        checkpointing: in training, keep only what goes into each layer, and compute the layer again for its gradient. Dropout
            falls on the same numbers both times. Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
        skip_padding: beside a padding mask, run each sequence from its first real token to its last, alone or with those of
            the same extent. The same numbers for real tokens, and 0 for the padding around them. Worth it where sequences are
            long and differ much in length: on a CPU from about a hundred tokens on; a GPU rather wants the whole batch at once.

    Raises:
        ValueError: no layers.
    """

    def __init__(
        self,
        layers: Iterable[EncoderLayer],
        norm: nn.Module | None = None,
        *,
        is_causal: bool = False,
        alibi: int | None = None,
        checkpointing: bool = False,
        skip_padding: bool = False,
    ):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if not len(self.layers):
            raise ValueError("a stack has at least 1 layer, got none.")
        self.norm = norm
        self.is_causal, self.alibi = is_causal, alibi
        self.checkpointing, self.skip_padding = checkpointing, skip_padding

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """Run x through the layers, one after another.

        Args:
            x: (B, L, d_model).
            mask: of every self-attention, (L, S) or (B or 1, H or 1, L or 1, S), where S = L without a cache.
            memory, memory_mask: of `DecoderLayer`s, which need a memory; other layers take none.
            cache: holds the tokens that went before and takes on these; the mask's S counts them all.

        Returns:
            (B, L, d_model).

        Raises:
            ValueError: a memory missing or not wanted; a cache for another stack; and what `MultiHeadAttention` raises.
        """
        self._check(memory, cache)
        if self.skip_padding and memory is None and cache is None and _is_padding(mask, x):
            return self._without_padding(x, mask)
        return self._run(x, mask, memory, memory_mask, cache)

    def _run(self, x, mask, memory=None, memory_mask=None, cache=None) -> Tensor:
        mask, is_causal = self._join(x, mask, x.size(1) + (0 if cache is None else cache.length))
        for i, layer in enumerate(self.layers):
            inputs = (x, mask) if memory is None else (x, memory, mask, memory_mask)
            options = {} if cache is None else cache.of_layer(i)
            if self.checkpointing and self.training and torch.is_grad_enabled():
                x = checkpoint(layer, *inputs, is_causal=is_causal, use_reentrant=False, **options)
            else:
                x = layer(*inputs, is_causal=is_causal, **options)
        return x if self.norm is None else self.norm(x)

    def _without_padding(self, x: Tensor, mask: Tensor) -> Tensor:
        """Sequences of one extent together. What lies between two real tokens stays, so that distances do."""
        real, L = mask[:, 0, 0], x.size(1)
        first = real.int().argmax(dim=1)
        stop = (real * torch.arange(1, L + 1, device=x.device)).amax(dim=1)  # 0 for a sequence without any real token
        groups: dict[tuple[int, int], list[int]] = {}
        for row, extent in enumerate(zip(first.tolist(), stop.tolist(), strict=True)):
            groups.setdefault(extent, []).append(row)
        parts = []
        for (start, end), rows in groups.items():
            inside = mask[rows, ..., start:end]
            part = x[rows, start:end]
            part = self._run(part, None if inside.all() else inside) if end else part
            parts.append(F.pad(part, (0, 0, start, L - end)))
        order = torch.tensor([row for rows in groups.values() for row in rows], device=x.device)
        return torch.cat(parts)[order.argsort()]

    def _check(self, memory: Tensor | None, cache: DecoderCache | None) -> None:
        reads = hasattr(self.layers[0], "cross_attn")  # and not its class: a compiled layer is of another
        if reads and memory is None:
            raise ValueError("decoder layers read a memory, got None: pass memory=(B, S, d_model), an encoder's output.")
        if memory is not None and not reads:
            raise ValueError(f"encoder layers take no memory, got one of {tuple(memory.shape)}. Decoder layers do.")
        if cache is not None:
            cache.check(len(self.layers), reads)

    def _join(self, x: Tensor, mask: Tensor | None, S: int) -> tuple[Tensor | None, bool]:
        """The mask of all layers, made once: the caller's, causality and ALiBi."""
        B, L, _ = x.shape
        if mask is not None:
            masks.check(mask, (B, self.layers[0].self_attn.num_heads, L, S))
        mask, is_causal = with_causal(mask, self.is_causal, L, S, device=x.device, fused=self.alibi is None)
        if self.alibi is not None:
            wide = torch.promote_types(x.dtype, torch.float32)
            mask = masks.combine(mask, alibi_bias(self.alibi, L, S, dtype=wide, device=x.device))
        return mask, is_causal

    def extra_repr(self) -> str:
        """What a printed model says of it."""
        names = ("is_causal", "alibi", "checkpointing", "skip_padding")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class Encoder(Stack):
    """Layers of self-attention: x (B, L, d_model) -> (B, L, d_model). Causal ones are the body of a GPT.

    Args:
        config: sizes and choices.
        num_layers: `config.num_encoder_layers` when not given.
        is_causal: whether no token looks at a later one.
    """

    def __init__(self, config: TransformerConfig, num_layers: int | None = None, *, is_causal: bool = False):
        num_layers = config.num_encoder_layers if num_layers is None else num_layers
        super().__init__(is_causal=is_causal, **_parts(EncoderLayer, num_layers, config))


class Decoder(Stack):
    """Layers of causal self-attention and attention to a memory: x (B, L, d_model), memory (B, S, d_model) -> as x."""

    def __init__(self, config: TransformerConfig):
        super().__init__(is_causal=True, **_parts(DecoderLayer, config.num_decoder_layers, config))


def _is_padding(mask: Tensor | None, x: Tensor) -> bool:
    return mask is not None and mask.dtype == torch.bool and mask.shape == (len(x), 1, 1, x.size(1)) and x.numel() > 0


def _parts(layer: type[EncoderLayer], num_layers: int, config: TransformerConfig) -> dict:
    """The parts of a `Stack`."""
    names = ("d_model", "num_heads", "dim_feedforward", "dropout", "activation", "norm_first", "layer_norm_eps", "bias")
    options = {name: getattr(config, name) for name in (*names, "attention_dropout", "num_kv_heads")}
    if config.positional == "rotary":
        if config.d_model % (2 * config.num_heads):
            raise ValueError(
                f"rotary positions turn pairs of numbers, so d_model / num_heads must be even, got {config.d_model} / "
                f"{config.num_heads}. Nearest d_model: {config.d_model + -config.d_model % (2 * config.num_heads)}."
            )
        options["rotary"] = RotaryEncoding(config.d_model // config.num_heads, config.base)
    has_norm = config.norm_first if config.final_norm is None else config.final_norm
    return {
        "layers": [layer(**options) for _ in range(num_layers)],
        "norm": nn.LayerNorm(config.d_model, config.layer_norm_eps, bias=config.bias) if has_norm else None,
        "alibi": config.num_heads if config.positional == "alibi" else None,
        "checkpointing": config.checkpointing,
        "skip_padding": config.skip_padding and layer is EncoderLayer,
    }
