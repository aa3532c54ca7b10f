"""The layers of a Transformer: attention and a feed-forward network, each beside a residual connection and a layer norm.

    post-norm (the paper)      x = norm(x + dropout(sublayer(x)))
    pre-norm (norm_first)      x = x + dropout(sublayer(norm(x)))

Names, meanings and defaults are those of `torch.nn.TransformerEncoderLayer` and `TransformerDecoderLayer`, bar the masks, which
have this library's one polarity (True = may attend), and `batch_first`, which is always.

Shapes: B sequences, L tokens, S tokens of the context; d_model the width of a token.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from lib.cache import KVCache
from lib.multihead import MultiHeadAttention
from lib.positional import RotaryEncoding

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """The same two-layer network at each position: linear2(dropout(activation(linear1(x)))).

    "swiglu" is gated: linear1 is twice as wide, and the activation of one half multiplies the other. With two thirds of the
    `dim_feedforward` it has as many weights as the others.

    Args:
        d_model: width of a token.
        dim_feedforward: width between the two layers.
        dropout: probability of dropping a number in between, in training mode.
        activation: "relu" (the paper), "gelu" (exact) or "swiglu".
        bias: whether the two layers have a bias.

    Raises:
        ValueError: a width below 1, or an unknown activation.

    Source: Vaswani et al. 2017, equation 2; Shazeer 2020, "GLU Variants Improve Transformer", for the gate.
    """

    def __init__(
        self, d_model: int, dim_feedforward: int, dropout: float = 0.0, activation: str = "relu", *, bias: bool = True
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
        if dim_feedforward < 1:
            raise ValueError(f"dim_feedforward is a width, at least 1, got {dim_feedforward}.")
        self.gated = activation == "swiglu"
        self.activation = ACTIVATIONS[activation]
        self.linear1 = nn.Linear(d_model, dim_feedforward * (2 if self.gated else 1), bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias=bias)
        for layer in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, d_model) -> (…, d_model)."""
        x = self.linear1(x)
        if self.gated:
            gate, x = x.chunk(2, dim=-1)
            x = self.activation(gate) * x
        else:
            x = self.activation(x)
        return self.linear2(self.dropout(x))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network. With `is_causal` in its calls it is the layer of a GPT too.

    Args:
        d_model: width of a token.
        num_heads: number of heads.
        dim_feedforward: width inside the feed-forward network.
        dropout: probability of dropping, in training mode: numbers of each sub-layer's output and inside the feed-forward
            network, and weights of the attention.
        activation: "relu", "gelu" or "swiglu", see `FeedForward`.
        norm_first: pre-norm (True) or post-norm.
        layer_norm_eps: added to the variance in each norm.
        bias: whether projections, feed-forward network and norms have a bias. True as in torch; the paper's projections in
            attention have none.
        attention_dropout: probability of dropping a weight of the attention; `dropout` when not given. At 0 the fused kernels
            can be used in training on a CPU too.
        num_kv_heads, rotary, alibi: see `MultiHeadAttention`.

    Raises:
        ValueError: sizes that do not fit together.

    Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020, "On Layer Normalization in the Transformer", for pre-norm.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        *,
        norm_first: bool = False,
        layer_norm_eps: float = 1e-5,
        bias: bool = True,
        attention_dropout: float | None = None,
        num_kv_heads: int | None = None,
        rotary: RotaryEncoding | None = None,
        alibi: bool = False,
    ):
        super().__init__()
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)
        self.self_attn = MultiHeadAttention(
            d_model,
            num_heads,
            num_kv_heads=num_kv_heads,
            dropout=dropout if attention_dropout is None else attention_dropout,
            bias=bias,
            rotary=rotary,
            alibi=alibi,
        )
        self.feed_forward = FeedForward(d_model, dim_feedforward, dropout, activation, bias=bias)
        self.norm1 = nn.LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = nn.LayerNorm(d_model, layer_norm_eps, bias=bias)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, is_causal: bool = False, cache: KVCache | None = None
    ) -> Tensor:
        """x (B, L, d_model) -> (B, L, d_model). Mask, `is_causal`, cache and errors are those of `MultiHeadAttention`."""
        x = self._beside(x, self.norm1, lambda x: self.self_attn(x, mask=mask, is_causal=is_causal, cache=cache)[0])
        return self._beside(x, self.norm2, self.feed_forward)

    def _beside(self, x: Tensor, norm: nn.LayerNorm, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """A sub-layer beside its residual connection: the one place of norm and dropout."""
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class DecoderLayer(EncoderLayer):
    """Self-attention, then attention to the encoder's output (the memory), then the feed-forward network.

    Args:
        d_model, num_heads, dim_feedforward, dropout, activation, options: those of `EncoderLayer`.
        d_memory: width of a token of the memory; d_model when not given.

    Raises:
        ValueError: sizes that do not fit together.

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        *,
        d_memory: int | None = None,
        **options,
    ):
        super().__init__(d_model, num_heads, dim_feedforward, dropout, activation, **options)
        bias = self.norm1.bias is not None
        self.cross_attn = MultiHeadAttention(
            d_model,
            num_heads,
            num_kv_heads=self.self_attn.num_kv_heads,
            d_context=d_memory,
            dropout=self.self_attn.dropout,
            bias=bias,
        )
        self.norm3 = nn.LayerNorm(d_model, self.norm1.eps, bias=bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        *,
        is_causal: bool = True,
        cache: KVCache | None = None,
        memory_cache: KVCache | None = None,
    ) -> Tensor:
        """Let each token attend to those before it, and to the memory.

        Args:
            x: (B, L, d_model).
            memory: (B, S, d_memory).
            mask: of self-attention, (L, L) or (B or 1, H or 1, L or 1, L).
            memory_mask: of cross-attention, (L, S) or (B or 1, H or 1, L or 1, S).
            is_causal: whether self-attention looks at no later token. A decoder's does not, so True; where torch has the
                argument, it is named `tgt_is_causal` and False.
            cache, memory_cache: of self-attention and of cross-attention, see `MultiHeadAttention`.

        Returns:
            (B, L, d_model).

        Raises:
            ValueError: no memory; and what `MultiHeadAttention` raises.
        """
        if memory is None:  # else cross-attention would turn to x itself, later tokens included
            raise ValueError("a decoder layer reads a memory (B, S, d_memory), got None. Without one, use an EncoderLayer.")
        x = self._beside(x, self.norm1, lambda x: self.self_attn(x, mask=mask, is_causal=is_causal, cache=cache)[0])
        x = self._beside(x, self.norm2, lambda x: self.cross_attn(x, memory, mask=memory_mask, cache=memory_cache)[0])
        return self._beside(x, self.norm3, self.feed_forward)
