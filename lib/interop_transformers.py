"""Our attention inside the models of Hugging Face's `transformers`, in place of their own.

    register()
    model.set_attn_implementation("measured")                                # a model at hand
    AutoModel.from_pretrained(name, attn_implementation="measured")          # or from the start

It fits models that call attention through `transformers.AttentionInterface`: in version 5 BERT, GPT-2, T5, Llama and nearly all
others. The library does without `transformers`; only `register` imports it.

Against their "eager", three things differ. A query without any key gets 0, not the mean of all values. Weights are those before
dropout. Where they are not asked for, they are never formed.

Shapes: B sequences, H heads of the query, H_kv heads of key and value, L queries, S keys, d_k and d_v the widths of a head.
"""

import importlib
from functools import partial

from torch import Tensor, nn

from lib import masks
from lib.attention import BACKENDS, scaled_dot_product_attention

# What some models hand over and other attentions skip in silence. Each makes another function of attention than ours.
_FOREIGN = {
    "softcap": "scores squeezed by a tanh",
    "s_aux": "a softmax with a sink",
    "sinks": "a softmax with a sink",
    "indices": "a choice of keys for each query",
    "block_indices": "a choice of blocks of keys for each query",
}


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    output_attentions: bool | None = False,
    *,
    backend: str = "auto",
    need_weights: bool = False,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """Our attention with the signature that the models call; `register` hands it over.

    Args:
        module: the model's attention layer. Dropout happens in its training mode alone. Its `is_causal`, True where it has
            none, counts where the argument is None.
        query, key, value: (B, H, L, d_k), (B, H_kv, S, d_k), (B, H_kv, S, d_v). H_kv divides H.
        attention_mask: (B or 1, H or 1, L or 1, S), boolean with True = may attend, or float, added to the scores.
        scaling: factor of the scores; 1/√d_k when not given.
        dropout: probability of dropping a weight.
        is_causal: whether a query sees no later key, where there is no mask; with one, the mask says so. A single query is a
            step of decoding and sees every key.
        position_bias: added to the scores beside the mask (1 or B, H, L, S), as T5 has it.
        sliding_window: number of keys that a query sees. The mask carries it; here it is only checked that it does.
        output_attentions, need_weights: whether to return the weights.
        backend: of `scaled_dot_product_attention`, where weights are not asked for.
        options: whatever else a model hands over. What would change the numbers is an error, the rest has no say here.

    Returns:
        output (B, L, H, d_v), and the weights (B, H, L, S), or None unless asked for.

    Raises:
        ValueError: softcap, attention sinks, chosen keys; a window that no mask carries; shapes that do not fit.
        TypeError: a mask that is neither boolean nor float.
    """
    _check(module, attention_mask, key.size(2), sliding_window, options)
    need_weights = need_weights or bool(output_attentions)
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    attended = scaled_dot_product_attention(
        query,
        key,
        value,
        masks.combine(position_bias, attention_mask),
        dropout_p=dropout if module.training else 0.0,
        is_causal=query.size(2) > 1 and attention_mask is None and is_causal,
        scale=scaling,
        enable_gqa=key.size(1) != query.size(1),
        need_weights=need_weights,
        backend="auto" if need_weights else backend,
    )
    output, weights = attended if need_weights else (attended, None)
    return output.transpose(1, 2).contiguous(), weights  # (B, H, L, d_v) -> (B, L, H, d_v)


def register(name: str = "measured", *, backend: str = "auto", need_weights: bool = False) -> str:
    """Make our attention known to `transformers` under a name, and boolean masks as what its models are to give it.

    Args:
        name: what `attn_implementation` calls it.
        backend: of `scaled_dot_product_attention`, where weights are not asked for.
        need_weights: form the weights at every call. Otherwise they are formed where `output_attentions=True` gets as far as
            here. In BERT, T5 and Llama it does. GPT-2 keeps it to itself, and shows weights only if they are always formed.

    Returns:
        The name.

    Raises:
        ImportError: `transformers` is missing or too old, saying what to install.
        ValueError: an unknown backend, or a name by which `transformers` knows another attention.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    try:
        transformers = importlib.import_module("transformers")
        boolean_mask = importlib.import_module("transformers.masking_utils").sdpa_mask
        attentions, mask_makers = transformers.AttentionInterface, transformers.AttentionMaskInterface
    except (ImportError, AttributeError) as error:
        raise ImportError('Hugging Face\'s models are in a package of their own: pip install "transformers>=5"') from error
    known = attentions().get(name)
    if name == "eager" or (known is not None and getattr(known, "func", None) is not attention_forward):
        raise ValueError(f"transformers knows another attention by the name {name!r}. Choose a name of your own.")
    attentions.register(name, partial(attention_forward, backend=backend, need_weights=need_weights))
    mask_makers.register(name, boolean_mask)
    return name


def _check(module: nn.Module, mask: Tensor | None, S: int, sliding_window: int | None, options: dict) -> None:
    """Refuse what would be left out in silence."""
    layer = type(module).__name__
    for name, meaning in _FOREIGN.items():
        if options.get(name) is not None:
            raise ValueError(f"{layer} needs {meaning} ({name}), which is not ours. Use attn_implementation='eager'.")
    if sliding_window is not None and mask is None and sliding_window < S:
        raise ValueError(
            f"{layer} has a window of {sliding_window} keys, but {S} keys came without a mask that says so. "
            "Use register(), which has the masks made too."
        )
