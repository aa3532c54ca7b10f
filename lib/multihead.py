"""Multi-head attention, of a sequence to itself or to another, over the one core in `lib.attention`.

Shapes, beside those of `lib.attention` (B, H, H_kv, L, S, d_k, d_v, d_model):
    d_k, d_v   widths of one head, so that all heads together are H · d_k and H · d_v wide
    d_context  width of a token of the other sequence
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib import masks
from lib.attention import scaled_dot_product_attention
from lib.cache import KVCache
from lib.positional import RotaryEncoding, alibi_bias


class MultiHeadAttention(nn.Module):
    """H heads look at the same sequence, each through projections of its own, and one projection joins what they found.

        head_i = attention(query · W_q,i, context · W_k,i, context · W_v,i),   output = (head_1, …, head_H) · W_o

    All heads are projected in one product. `in_proj` holds W_q, W_k and W_v one below the other (`projections` takes them
    apart), so that self-attention reads its input once. A context of another width needs matrices of another width: there,
    `q_proj` and `kv_proj` take its place.

    Args:
        d_model: width of the query's tokens and of the output.
        num_heads: number of heads, H.
        d_k: width of a query and a key in one head; d_model / num_heads when not given.
        d_v: width of a value in one head; d_model / num_heads when not given.
        num_kv_heads: number of heads of key and value, H_kv, each shared by H / H_kv neighboring heads of the query; H when not
            given. 1 is multi-query attention (Shazeer 2019), between is grouped-query attention (Ainslie et al. 2023).
        d_context: width of the context's tokens; d_model when not given.
        dropout: probability of dropping a weight, in training mode.
        bias: whether the projections have a bias. The subject's usual choice is none, so False; torch's default is True.
        rotary: a `RotaryEncoding(d_k)` that turns queries and keys. For self-attention.
        alibi: whether scores fall with distance (`lib.positional.alibi_bias`). For self-attention.

    Raises:
        ValueError: numbers that do not fit together, naming them and the nearest that do.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        num_kv_heads: int | None = None,
        d_context: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        rotary: RotaryEncoding | None = None,
        alibi: bool = False,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        d_context = d_model if d_context is None else d_context
        d_k, d_v = _check_sizes(d_model, num_heads, d_k, d_v, num_kv_heads, d_context, dropout, rotary)
        self.d_model, self.d_context, self.d_k, self.d_v = d_model, d_context, d_k, d_v
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.dropout, self.rotary, self.alibi = dropout, rotary, alibi

        # Rows of W_q, W_k and W_v.
        self._rows = [num_heads * d_k, num_kv_heads * d_k, num_kv_heads * d_v]
        if d_context == d_model:
            self.in_proj = nn.Linear(d_model, sum(self._rows), bias=bias)
        else:
            self.q_proj = nn.Linear(d_model, self._rows[0], bias=bias)
            self.kv_proj = nn.Linear(d_context, sum(self._rows[1:]), bias=bias)
        self.out_proj = nn.Linear(num_heads * d_v, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's uniform start, biases 0. W_q, W_k and W_v are drawn as torch draws them joined: with half the variance."""
        for weight in self.projections():
            nn.init.xavier_uniform_(weight, gain=0.5**0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)

    def projections(self) -> tuple[Tensor, Tensor, Tensor]:
        """W_q (H·d_k, d_model), W_k (H_kv·d_k, d_context) and W_v (H_kv·d_v, d_context): views to look at, or to write to under
        `torch.no_grad()`. Head i owns the i-th d_k or d_v rows."""
        if self.d_context == self.d_model:
            return self.in_proj.weight.split(self._rows)
        return self.q_proj.weight, *self.kv_proj.weight.split(self._rows[1:])

    def forward(
        self,
        query: Tensor,
        context: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Let each token of the query attend to the context, or to the query's own sequence where there is no context.

        Args:
            query: (B, L, d_model).
            context: (B, S, d_context); the query itself when not given.
            mask: boolean, True = may attend, or float, added to the scores. (L, S) or (B or 1, H or 1, L or 1, S). With a
                cache, S counts the positions of the cache too.
            is_causal: the last query stands at the last key, and none sees a key after its own position (`masks.causal(L, S)`,
                which for L = S is what torch means). With `mask`, both hold.
            cache: of self-attention: the query continues the sequence that it holds, and is added to it. Of cross-attention:
                holds the context's keys and values, computed at the first call only; reset() it for another context, of
                which only B and S are compared.
            need_weights: return the weights of each head too.

        Returns:
            output (B, L, d_model), and the weights (B, H, L, S), or None unless asked for. Weights are taken before dropout, so
            that their rows sum to 1, or to 0 where a row has nothing to attend to.

        Raises:
            ValueError: shapes that do not fit, naming them; a cache that is full or holds a context of another size.
            TypeError: a mask that is neither boolean nor float.
        """
        self._check_inputs(query, context)
        B, L, _ = query.shape
        S = L + (0 if cache is None else cache.length) if context is None else context.size(1)
        if mask is not None:  # before anything is written to a cache
            masks.check(mask, (B, self.num_heads, L, S))
        if context is None:
            q, k, v = self._project_one(query, cache)
        else:
            q, k, v = self._project_two(query, context, cache)
        mask, is_causal = with_causal(mask, is_causal, L, S, device=q.device, fused=not self.alibi)
        if self.alibi:
            wide = torch.promote_types(q.dtype, torch.float32)
            mask = masks.combine(mask, alibi_bias(self.num_heads, L, S, dtype=wide, device=q.device))

        attended = scaled_dot_product_attention(
            q,
            k,
            v,
            mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=is_causal,
            enable_gqa=self.num_kv_heads != self.num_heads,
            need_weights=need_weights,
        )
        output, weights = attended if need_weights else (attended, None)
        output = output.transpose(1, 2).flatten(2)  # (B, H, L, d_v) -> (B, L, H·d_v); torch's kernels leave nothing to copy
        return self.out_proj(output), weights

    def _project_one(self, x: Tensor, cache: KVCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of one sequence, in one product. With a cache: keys and values of all that it holds."""
        q, k, v = self.in_proj(x).split(self._rows, dim=-1)
        q, k, v = _heads(q, self.d_k), _heads(k, self.d_k), _heads(v, self.d_v)
        if self.rotary is not None:
            offset = 0 if cache is None else cache.length
            q, k = self.rotary(q, offset=offset), self.rotary(k, offset=offset)
        return (q, k, v) if cache is None else (q, *cache.update(k, v))

    def _project_two(self, x: Tensor, context: Tensor, cache: KVCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of one sequence, keys and values of another, or of the cache once it holds them."""
        if self.d_context == self.d_model:
            n, weight, bias = self._rows[0], self.in_proj.weight, self.in_proj.bias
            of_query, of_context = ((weight[rows], None if bias is None else bias[rows]) for rows in (slice(n), slice(n, None)))
        else:
            of_query, of_context = ((layer.weight, layer.bias) for layer in (self.q_proj, self.kv_proj))
        q = _heads(F.linear(x, *of_query), self.d_k)
        if cache is not None and cache.length:
            held, given = (cache.keys.size(0), cache.length), tuple(context.shape[:2])
            if held != given:
                raise ValueError(f"the cache holds a context of (B, S) = {held}, this one has {given}. reset() it for another.")
            return q, cache.keys, cache.values
        k, v = F.linear(context, *of_context).split(self._rows[1:], dim=-1)
        k, v = _heads(k, self.d_k), _heads(v, self.d_v)
        return (q, k, v) if cache is None else (q, *cache.update(k, v))

    def _check_inputs(self, query: Tensor, context: Tensor | None) -> None:
        if query.dim() != 3 or query.size(-1) != self.d_model:
            hint = " For a single sequence use x[None]." if query.dim() == 2 and query.size(-1) == self.d_model else ""
            raise ValueError(f"query must be (B, L, d_model = {self.d_model}), got {tuple(query.shape)}.{hint}")
        if context is None:
            if self.d_context != self.d_model:
                raise ValueError(
                    f"a context is needed, (B, S, d_context = {self.d_context}): keys and values of width {self.d_context} "
                    f"cannot come from the query of width {self.d_model}."
                )
            return
        if self.rotary is not None or self.alibi:
            raise ValueError(
                "rotary encodings and ALiBi speak of distances in one sequence, and a context is another: build this attention "
                "without them, or pass no context for self-attention."
            )
        if context.dim() != 3 or context.size(-1) != self.d_context or context.size(0) != query.size(0):
            raise ValueError(
                f"context must be (B = {query.size(0)}, S, d_context = {self.d_context}), got {tuple(context.shape)}. "
                "Its length is free."
            )

    def extra_repr(self) -> str:
        """What a printed model says of it."""
        names = ("num_heads", "num_kv_heads", "d_k", "d_v", "dropout", "alibi")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


def with_causal(
    mask: Tensor | None, is_causal: bool, L: int, S: int, *, device=None, fused: bool = True
) -> tuple[Tensor | None, bool]:
    """Mask and `is_causal`, aligned to the last key, as mask and `is_causal` of the core, aligned to the first.

    Args:
        mask: any mask that fits (L, S), or None.
        is_causal: whether no query may see a key after its own position; the last query stands at the last key.
        fused: whether the second may be True in the answer: fused kernels skip what it hides, and a mask is read whole.

    Returns:
        What says the same to `scaled_dot_product_attention`, with no mask built where none is needed.
    """
    if not is_causal or L == 1:  # a single query stands at the last key and sees them all
        return mask, False
    if fused and mask is None and L == S:
        return None, True
    return masks.combine(mask, masks.causal(L, S, device=device)), False


@contextmanager
def recorded_weights(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Look at the weights of every attention in a model while it runs as it is.

        with recorded_weights(model) as weights:
            model(tokens)
        weights["encoder.layers.0.self_attn"]  # (B, H, L, S)

    Inside, each `MultiHeadAttention` is asked for its weights, which takes O(L · S) memory; what they are at its latest call is
    kept, with their graph if gradients are enabled. Checkpointing and `skip_padding` rest meanwhile: a layer computed again
    after the block would not be asked, and sequences that run alone have no weights in common. For other modules than ours,
    or where no output may change by a bit, take `lib.diagnostics.record_attention`.
    """
    weights, handles, resting = {}, [], []
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            handles += [
                module.register_forward_pre_hook(lambda _, args, kw: (args, {**kw, "need_weights": True}), with_kwargs=True),
                module.register_forward_hook(lambda _, __, answer, name=name: weights.update({name: answer[1]})),
            ]
        for switch in ("checkpointing", "skip_padding"):
            if getattr(module, switch, False) is True:
                resting.append((module, switch))
                setattr(module, switch, False)
    try:
        yield weights
    finally:
        for module, switch in resting:
            setattr(module, switch, True)
        for handle in handles:
            handle.remove()


def _heads(x: Tensor, width: int) -> Tensor:
    return x.unflatten(-1, (-1, width)).transpose(1, 2)  # (B, L, H·d) -> (B, L, H, d) -> (B, H, L, d), nothing copied


def _check_sizes(d_model, num_heads, d_k, d_v, num_kv_heads, d_context, dropout, rotary) -> tuple[int, int]:
    """Refuse sizes that do not fit together, and return d_k and d_v."""
    given = {"d_model": d_model, "num_heads": num_heads, "d_k": d_k, "d_v": d_v, "num_kv_heads": num_kv_heads}
    for name, size in {**given, "d_context": d_context}.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} is at least 1, got {size}.")
    if num_heads % num_kv_heads:
        fits = [n for n in range(1, num_heads + 1) if num_heads % n == 0]
        raise ValueError(f"num_kv_heads must divide num_heads = {num_heads}, got {num_kv_heads}. These do: {fits}.")
    if d_model % num_heads and (d_k is None or d_v is None):
        widths = [width for width in (d_model - d_model % num_heads, d_model + -d_model % num_heads) if width]
        heads = [n for n in range(1, d_model + 1) if d_model % n == 0]
        heads = [*[n for n in heads if n < num_heads][-1:], *[n for n in heads if n > num_heads][:1]]
        raise ValueError(
            f"d_model = {d_model} cannot be split among num_heads = {num_heads}. The nearest that fit: "
            f"num_heads {' or '.join(map(str, heads))}, d_model {' or '.join(map(str, widths))}; or give d_k and d_v."
        )
    d_k, d_v = d_k or d_model // num_heads, d_v or d_model // num_heads
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout is a probability, 0 … 1, got {dropout}.")
    if rotary is not None and rotary.d_head != d_k:
        raise ValueError(f"rotary turns queries and keys of width {rotary.d_head}, but d_k is {d_k} here.")
    return d_k, d_v
