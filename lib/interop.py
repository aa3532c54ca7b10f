"""From torch's modules to ours and back: the same weights, the same numbers.

    torch                          ours
    nn.MultiheadAttention          MultiHeadAttention
    nn.TransformerEncoderLayer     EncoderLayer
    nn.TransformerDecoderLayer     DecoderLayer
    nn.TransformerEncoder          Stack of EncoderLayers
    nn.TransformerDecoder          Stack of DecoderLayers
    nn.Transformer                 nn.ModuleDict of two Stacks, "encoder" and "decoder", as every `Transformer` holds them

`from_torch` and `to_torch` give copies that share no memory with what they were made of. Dtype, device, training mode, frozen
weights and layers used twice come along. What the other side cannot express is an error and never left out in silence.

The calls still differ, in three things:
    axes        ours are batch first, always; `to_torch` asks which torch's shall be
    masks       in ours True = may attend, in torch's modules True = ignore: `mask_from_torch`, `mask_to_torch`
    causality   our decoders are causal by themselves; torch's modules wait to be given the mask

For Hugging Face's models see `lib.interop_transformers`.
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib import masks
from lib.layers import DecoderLayer, EncoderLayer
from lib.multihead import MultiHeadAttention
from lib.stacks import Decoder, Encoder, Stack
from lib.transformer import Transformer


def from_torch(module: nn.Module) -> nn.Module:
    """This library's module with the weights of torch's.

    Args:
        module: one of torch's modules in the table above, batch first or not.

    Returns:
        Ours, see the table. Its inputs are (B, L, d_model). Where torch's attention could be given keys and values of two
        sources, ours takes one context. A stack of `DecoderLayer`s is causal; where that is not wanted, set its `is_causal`.

    Raises:
        TypeError: another module. Subclasses are others: they may compute something else.
        ValueError: what ours does not have, naming it: add_bias_kv, add_zero_attn, kdim ≠ vdim, an activation other than relu
            and exact gelu, different dropouts behind the sub-layers of one layer; layers of both kinds in a stack; weights that
            smaller parts than a layer share.
    """
    return _convert(module, _FROM_TORCH)


def to_torch(module: nn.Module, *, batch_first: bool = True) -> nn.Module:
    """Torch's module with the weights of ours.

    Args:
        module: one of this library's modules in the table above, or a whole `Transformer`, whose embeddings and output torch's
            does not have and which therefore stay behind.
        batch_first: whether torch's shall take (B, L, d_model) or (L, B, d_model). Torch's own default is False.

    Returns:
        Torch's, see the table. Whether a stack is causal, and whether it is checkpointed, is not torch's to remember.

    Raises:
        TypeError: another module, or a subclass.
        ValueError: what torch's does not have, naming it: rotary encodings, ALiBi, shared key heads, d_k or d_v other than
            d_model / num_heads, a memory of another width, a gated feed-forward network; the last two of `from_torch`.
    """
    return _convert(module, _TO_TORCH, batch_first)


def mask_from_torch(
    attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, num_heads: int | None = None
) -> Tensor | None:
    """The masks of a call to torch's modules, as the one mask of a call to ours.

    Args:
        attn_mask: (L, S) or (B · H, L, S), boolean with True = ignore, or float, added to the scores. Torch's layers call it
            `src_mask`, `tgt_mask` or `memory_mask`.
        key_padding_mask: (B, S), boolean with True = ignore, or float.
        num_heads: H, where the attn_mask has three axes.

    Returns:
        (L, S), (B, 1, 1 or L, S) or (B, H, L, S), boolean with True = may attend, or float; None if there was no mask.

    Raises:
        TypeError: a mask that is neither boolean nor float.
        ValueError: shapes that do not fit, naming them.
    """
    padding = None if key_padding_mask is None else masks.from_torch_padding(key_padding_mask)
    if attn_mask is None:
        return padding
    shape = tuple(attn_mask.shape)
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise TypeError(f"attn_mask must be boolean (True = ignore) or float (added to the scores), got {attn_mask.dtype}.")
    if len(shape) not in (2, 3):
        raise ValueError(f"attn_mask must have shape (L, S) or (B · H, L, S), got {shape}.")
    if len(shape) == 3:
        if num_heads is None or num_heads < 1 or shape[0] % num_heads:
            raise ValueError(f"attn_mask {shape} is (B · H, L, S): num_heads must be given and divide B · H, got {num_heads}.")
        attn_mask = attn_mask.unflatten(0, (shape[0] // num_heads, num_heads))  # (B·H, L, S) -> (B, H, L, S)
    if padding is not None and padding.size(-1) != shape[-1]:
        raise ValueError(f"attn_mask {shape} has {shape[-1]} keys and key_padding_mask {padding.size(-1)}.")
    if padding is not None and len(shape) == 3 and len(padding) != len(attn_mask):
        raise ValueError(f"attn_mask {shape} is of {len(attn_mask)} sequences and key_padding_mask of {len(padding)}.")
    return masks.combine(~attn_mask if attn_mask.dtype == torch.bool else attn_mask, padding)


def mask_to_torch(mask: Tensor, scores_shape: tuple[int, int, int, int]) -> Tensor:
    """The mask of a call to ours as `attn_mask` (`src_mask`, `tgt_mask`, `memory_mask`) of a call to torch's modules.

    Args:
        mask: (L, S) or (B or 1, H or 1, L or 1, S), boolean with True = may attend, or float, added to the scores.
        scores_shape: (B, H, L, S) of the call.

    Returns:
        (L, S), or (B · H, L, S) where the mask has four axes; boolean with True = ignore, or float. A row without any key gives
        0 in ours and often NaN in torch's.

    Raises:
        TypeError, ValueError: those of `masks.check`.
    """
    masks.check(mask, scores_shape)
    if mask.dim() == 4:
        mask = mask.expand(scores_shape).flatten(0, 1)  # (B, H, L, S) -> (B·H, L, S)
    return ~mask if mask.dtype == torch.bool else mask


def _attention_from_torch(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    ours, d_model = "MultiHeadAttention", theirs.embed_dim
    _refuse(theirs.bias_k is not None, ours, "a learned key and value for every sequence (add_bias_kv)")
    _refuse(theirs.add_zero_attn, ours, "a key and value of zeros for every sequence (add_zero_attn)")
    widths = f"keys and values of sources of different widths (kdim {theirs.kdim}, vdim {theirs.vdim})"
    _refuse(theirs.kdim != theirs.vdim, ours, widths)

    weights = {f"out_proj.{name}": x for name, x in theirs.out_proj.named_parameters()}
    bias = theirs.in_proj_bias
    if theirs.in_proj_weight is not None:
        weights |= {"in_proj.weight": theirs.in_proj_weight}
        weights |= {} if bias is None else {"in_proj.bias": bias}
    else:
        weights |= {"q_proj.weight": theirs.q_proj_weight}
        weights |= {"kv_proj.weight": torch.cat((theirs.k_proj_weight, theirs.v_proj_weight))}
        weights |= {} if bias is None else {"q_proj.bias": bias[:d_model], "kv_proj.bias": bias[d_model:]}
    options = {"d_context": theirs.kdim, "dropout": theirs.dropout}
    return _filled(_empty(theirs, MultiHeadAttention, d_model, theirs.num_heads, **options), weights)


def _attention_to_torch(ours: MultiHeadAttention, batch_first: bool) -> nn.MultiheadAttention:
    theirs, d_head = "nn.MultiheadAttention", ours.d_model / ours.num_heads
    _refuse(ours.rotary is not None, theirs, "rotary encodings")
    _refuse(ours.alibi, theirs, "ALiBi")
    heads = f"{ours.num_kv_heads} key heads for {ours.num_heads} query heads"
    _refuse(ours.num_kv_heads != ours.num_heads, theirs, heads)
    widths = f"d_k = {ours.d_k} and d_v = {ours.d_v} where d_model / num_heads = {d_head:g}"
    _refuse(not ours.d_k == ours.d_v == d_head, theirs, widths)

    weights = {f"out_proj.{name}": x for name, x in ours.out_proj.named_parameters()}
    if ours.d_context == ours.d_model:
        weights |= {f"in_proj_{name}": x for name, x in ours.in_proj.named_parameters()}
    else:
        weights |= {f"{name}_proj_weight": x for name, x in zip("qkv", ours.projections(), strict=True)}
        if ours.q_proj.bias is not None:
            weights["in_proj_bias"] = torch.cat((ours.q_proj.bias, ours.kv_proj.bias))
    options = {"kdim": ours.d_context, "vdim": ours.d_context, "dropout": ours.dropout, "batch_first": batch_first}
    return _filled(_empty(ours, nn.MultiheadAttention, ours.d_model, ours.num_heads, bias=False, **options), weights)


def _layer_from_torch(theirs: nn.Module) -> EncoderLayer | DecoderLayer:
    kind, parts = _KINDS[type(theirs)]
    rates = [theirs.get_submodule(name).p for name, part in parts.items() if part == "dropout"]
    _refuse(len(set(rates)) > 1, kind.__name__, f"different dropouts behind its sub-layers ({', '.join(map(str, rates))})")
    activation = _activation(theirs.activation)
    _refuse(activation is None, kind.__name__, f"an activation {theirs.activation}")

    sizes = theirs.self_attn.embed_dim, theirs.self_attn.num_heads, theirs.linear1.out_features
    ours = _empty(theirs, kind, *sizes, activation=activation, norm_first=theirs.norm_first)
    for source, target in parts.items():
        part = theirs.get_submodule(source)
        ours.set_submodule(target, from_torch(part) if source in _ATTENTIONS else copy.deepcopy(part))
    return ours


def _layer_to_torch(ours: EncoderLayer | DecoderLayer, batch_first: bool) -> nn.Module:
    kind, parts = _KINDS[type(ours)]
    network, attention, name = ours.feed_forward, ours.self_attn, f"nn.{kind.__name__}"
    _refuse(network.gated, name, "a gated feed-forward network (swiglu)")
    if type(ours) is DecoderLayer:
        d_memory = ours.cross_attn.d_context
        _refuse(d_memory != attention.d_model, name, f"a memory of width {d_memory} for d_model = {attention.d_model}")

    sizes = attention.d_model, attention.num_heads, network.linear1.out_features
    options = {"activation": network.activation, "norm_first": ours.norm_first, "batch_first": batch_first}
    theirs = _empty(ours, kind, *sizes, **options)
    for target, source in parts.items():
        part = ours.get_submodule(source)
        theirs.set_submodule(target, to_torch(part, batch_first=batch_first) if target in _ATTENTIONS else copy.deepcopy(part))
    return theirs


def _stack_from_torch(theirs: nn.TransformerEncoder | nn.TransformerDecoder) -> Stack:
    ours = Stack(_layers(theirs, from_torch), copy.deepcopy(theirs.norm), is_causal=type(theirs) is nn.TransformerDecoder)
    ours.training = ours.layers.training = theirs.training
    return ours


def _stack_to_torch(ours: Stack, batch_first: bool) -> nn.TransformerEncoder | nn.TransformerDecoder:
    layers = _layers(ours, to_torch, batch_first=batch_first)
    if not layers:
        raise ValueError("a Stack without layers is neither an encoder nor a decoder, and torch has a module for each.")
    # Torch's constructors make copies of one layer. Ours come as they are, so they are put in afterwards.
    if type(layers[0]) is nn.TransformerEncoderLayer:
        # With nested tensors, torch cuts the output of a padded batch short, in eval alone (pytorch#97111).
        theirs = nn.TransformerEncoder(layers[0], 0, enable_nested_tensor=False)
    else:
        theirs = nn.TransformerDecoder(layers[0], 0)
    _refuse(ours.alibi is not None, f"nn.{type(theirs).__name__}", "ALiBi")
    theirs.layers, theirs.num_layers, theirs.norm = nn.ModuleList(layers), len(layers), copy.deepcopy(ours.norm)
    theirs.training = theirs.layers.training = ours.training
    return theirs


def _layers(stack: nn.Module, convert: Callable, **options) -> list[nn.Module]:
    """Each layer converted once, however often the stack uses it."""
    converted = {layer: convert(layer, **options) for layer in stack.layers}
    kinds = sorted({type(layer).__name__ for layer in stack.layers})
    _refuse(len(kinds) > 1, "a stack", f"layers of different kinds ({', '.join(kinds)})")
    return [converted[layer] for layer in stack.layers]


def _pair_from_torch(theirs: nn.Transformer) -> nn.ModuleDict:
    ours = nn.ModuleDict({name: from_torch(theirs.get_submodule(name)) for name in ("encoder", "decoder")})
    ours.training = theirs.training
    return ours


def _pair_to_torch(ours: Transformer | nn.ModuleDict, batch_first: bool) -> nn.Transformer:
    if isinstance(ours, nn.ModuleDict) and set(ours) != {"encoder", "decoder"}:
        raise ValueError(f'nn.Transformer is made of an "encoder" and a "decoder", got {", ".join(ours) or "nothing"}.')
    encoder, decoder = (to_torch(part, batch_first=batch_first) for part in (ours.encoder, ours.decoder))
    kinds = type(encoder).__name__, type(decoder).__name__
    swapped = kinds != ("TransformerEncoder", "TransformerDecoder")
    _refuse(swapped, "nn.Transformer", f"an encoder that becomes a {kinds[0]} beside a decoder that becomes a {kinds[1]}")
    attention, stand_in = ours.encoder.layers[0].self_attn, nn.Identity()
    # Torch's constructor would draw new weights for what it is given, so they are put in afterwards.
    theirs = nn.Transformer(
        attention.d_model, attention.num_heads, custom_encoder=stand_in, custom_decoder=stand_in, batch_first=batch_first
    )
    theirs.encoder, theirs.decoder, theirs.training = encoder, decoder, ours.training
    return theirs


# Parts of a layer, by torch's names and by ours. Torch has a dropout for each sub-layer, ours one for them all.
_ENCODER_PARTS = {name: name for name in ("self_attn", "norm1", "norm2")} | dict.fromkeys(("dropout1", "dropout2"), "dropout")
_ENCODER_PARTS |= {name: f"feed_forward.{name}" for name in ("linear1", "dropout", "linear2")}
_DECODER_PARTS = {**_ENCODER_PARTS, "multihead_attn": "cross_attn", "norm3": "norm3", "dropout3": "dropout"}
_ATTENTIONS = ("self_attn", "multihead_attn")

# From one kind of layer to the other's, and the parts of both.
_KINDS = {
    nn.TransformerEncoderLayer: (EncoderLayer, _ENCODER_PARTS),
    nn.TransformerDecoderLayer: (DecoderLayer, _DECODER_PARTS),
    EncoderLayer: (nn.TransformerEncoderLayer, _ENCODER_PARTS),
    DecoderLayer: (nn.TransformerDecoderLayer, _DECODER_PARTS),
}

_FROM_TORCH = {
    nn.MultiheadAttention: _attention_from_torch,
    **dict.fromkeys((nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), _layer_from_torch),
    **dict.fromkeys((nn.TransformerEncoder, nn.TransformerDecoder), _stack_from_torch),
    nn.Transformer: _pair_from_torch,
}
_TO_TORCH = {
    MultiHeadAttention: _attention_to_torch,
    **dict.fromkeys((EncoderLayer, DecoderLayer), _layer_to_torch),
    **dict.fromkeys((Encoder, Decoder, Stack), _stack_to_torch),
    **dict.fromkeys((Transformer, nn.ModuleDict), _pair_to_torch),
}


def _convert(module: nn.Module, converters: dict[type, Callable], *args) -> nn.Module:
    if type(module) not in converters:
        known = ", ".join(kind.__name__ for kind in converters)
        raise TypeError(f"cannot convert {type(module).__name__}, only {known}, and no subclass of them.")
    # Out of no_grad and inference mode, where parts of a weight would look frozen, and new weights be unfit for training.
    with torch.inference_mode(False):
        converted = converters[type(module)](module, *args)
    carried = nn.ModuleList([module.encoder, module.decoder]) if type(module) is Transformer else module
    before, after = (sum(x.numel() for x in of.parameters()) for of in (carried, converted))
    _refuse(before != after, type(converted).__name__, f"weights that parts share, {before} for {after}")
    return converted


def _refuse(found: bool, other: str, what: str) -> None:
    if found:
        raise ValueError(f"cannot carry over {what}: {other} has no such thing.")


def _activation(function: Callable) -> str | None:
    """The name that our layers know an activation by, if they do."""
    if function in (F.relu, torch.relu) or isinstance(function, nn.ReLU):
        return "relu"
    return "gelu" if function is F.gelu or (isinstance(function, nn.GELU) and function.approximate == "none") else None


def _empty(like: nn.Module, kind: type[nn.Module], *args, **options) -> nn.Module:
    """A module without memory for its weights: nothing is drawn, so the random state of the caller stays what it is."""
    with torch.device("meta"):
        return kind(*args, **options).train(like.training)


def _filled(module: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """The module with copies of these weights, by their names, frozen where they are."""
    for name, weight in weights.items():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, nn.Parameter(weight.detach().clone(), weight.requires_grad))
    return module
