"""Linear attention: feature maps in place of the softmax, so that all keys and values fit into one sum of fixed size.

    output_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) = φ(q_i)·Σ_j φ(k_j) v_jᵀ / φ(q_i)·Σ_j φ(k_j)

The two sums over j are the state. Here they stand side by side in one tensor, (B, H, features, d_v + 1): a value with a 1
appended gives the denominator as its last entry. The state is kept in float32 at least, since it grows with the length.

Features may be tiny, as e^x is. A factor common to all features of a query, or without causality to those of all keys, stands
above and below the line: it is divided out, so that their products stay in range. What is left is the range of a feature itself
(with causality, of a key's times a value). Float32 loses the digits of e^x below x = −87 and all of it below −104: a query or
key whose every number lies there has no say. Where that happens, use float64.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.efficient._inputs import fitted, key_mask, pad, positive
from lib.inputs import autocast_inputs, check_inputs, shapes, without_autocast

FeatureMap = Callable[[Tensor], Tensor]
FORMS = ("chunked", "parallel", "recurrent")


def elu_features(x: Tensor) -> Tensor:
    """elu(x) + 1: positive everywhere. Katharopoulos et al. 2020, equation 7."""
    return F.relu(x) + x.clamp(max=0.0).exp()  # e^x keeps its digits far below 0, where (e^x − 1) + 1 has none left


def relu_features(x: Tensor) -> Tensor:
    """max(x, 0). A query and a key without a common positive entry are blind to each other. Choromanski et al. 2021."""
    return F.relu(x)


class RandomFeatures:
    """The feature map that `random_features` draws: φ(x) = exp(ω·y − |y|²/2) / √m with y = x / d_k^¼.

    Args:
        directions: the m vectors ω, (m, d_k), float64, on the CPU.
    """

    def __init__(self, directions: Tensor):
        self.directions = directions
        self._copies: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def exponents(self, x: Tensor) -> Tensor:
        """log(φ(x) √m), from (…, d_k) to (…, m): `linear_attention` divides out common factors before they leave the range."""
        y = x / self.directions.size(1) ** 0.25
        return y @ self._directions(y).T - y.square().sum(dim=-1, keepdim=True) / 2

    def __call__(self, x: Tensor) -> Tensor:
        """φ, from (…, d_k) to (…, m)."""
        return self.exponents(x).exp() / math.sqrt(len(self.directions))

    def _directions(self, like: Tensor) -> Tensor:
        """Copied once for each dtype and device."""
        if torch.compiler.is_compiling():
            return self.directions.to(like)
        key = like.dtype, like.device
        if key not in self._copies:
            with torch.inference_mode(False):  # else no later backward pass could use it
                self._copies[key] = self.directions.to(*key[::-1])
        return self._copies[key]

    def __getstate__(self) -> dict:
        return {"directions": self.directions, "_copies": {}}


def random_features(d_k: int, num_features: int, *, generator: torch.Generator | None = None) -> RandomFeatures:
    """A feature map whose products estimate, without bias, the weights of softmax attention before they are normalized.

    φ(x) = exp(ω·y − |y|²/2) / √m with y = x / d_k^¼, for m vectors ω drawn from N(0, I). The error falls as 1/√m, and grows
    exponentially with the length of queries and keys. With causality, where keys are not scaled, their features of about
    exp(−|k|² / 2√d_k) leave the range of float32 from |k|² = 170 √d_k on.

    Args:
        d_k: width of queries and keys.
        num_features: m.
        generator: source of the draws, on the CPU; torch's global one when not given.

    Raises:
        ValueError: a size below 1.

    Source: Choromanski et al. 2021, "Rethinking Attention with Performers", lemma 1.
    """
    positive(d_k=d_k, num_features=num_features)
    return RandomFeatures(torch.randn(num_features, d_k, generator=generator, dtype=torch.float64, device="cpu"))


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
    feature_map: FeatureMap = elu_features,
    form: str = "chunked",
    chunk_size: int = 128,
) -> Tensor:
    """Attention whose weights are φ(q)·φ(k), normalized: work and memory grow with the length, not with its square.

    Args:
        query: (B, H, L, d_k).
        key: (B, H, S, d_k), or (B, H_kv, S, d_k) with `enable_gqa`.
        value: (B, H, S, d_v), or (B, H_kv, S, d_v) with `enable_gqa`.
        attn_mask: a boolean mask of keys, True = may attend, (B or 1, H or 1, 1, S): `masks.padding(lengths, S)`.
        is_causal: query i sees keys 0 … i; L = S is then needed.
        feature_map: φ, from (…, d_k) to (…, features), none below 0. It gets float32 at least.
        form: how the causal sums are formed; the result is the same but for rounding. "chunked": chunks in parallel, a state
            between them, O(L). "parallel": all (L, S) products, O(L²), the definition. "recurrent": a state carried from
            token to token, O(L), as a decoder does with `linear_attention_step`. Without `is_causal` the keys are summed
            once, whatever the form.
        chunk_size: positions in a chunk.

    Returns:
        (B, H, L, d_v) in the dtype of the query. A row whose weights are all 0 is 0.

    Raises:
        TypeError: inputs that are not floating point or differ in dtype; a mask that is not boolean; a chunk that is no whole
            number.
        ValueError: shapes that do not fit; a mask with a row for each query; causal with L ≠ S; an unknown form; a chunk
            below 1.

    Source: Katharopoulos et al. 2020, "Transformers are RNNs", equations 4 to 12 and 16 to 20; chunks after Hua et al. 2022,
        "Transformer Quality in Linear Time", section 3.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
    positive(chunk_size=chunk_size)
    dtype = autocast_inputs(query)[0].dtype
    query, key, value = _features(query, key, value, attn_mask, enable_gqa, feature_map, is_causal)
    L, S = query.size(-2), key.size(-2)
    if is_causal and L != S:
        raise ValueError(
            f"causal linear attention needs a key for each query, got {L} queries and {S} keys. "
            "To go on from a state use linear_attention_step."
        )
    with without_autocast(query.device):
        if not is_causal:
            sums = query @ (key.transpose(-2, -1) @ value)
        elif form == "parallel":
            sums = (query @ key.transpose(-2, -1)).tril() @ value
        elif form == "chunked":
            sums = _chunked(query, key, value, fitted(chunk_size, L))
        else:
            sums = _recurrent(query, key, value)
        return _normalize(sums).to(dtype)


def linear_attention_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor | None = None,
    *,
    enable_gqa: bool = False,
    feature_map: FeatureMap = elu_features,
) -> tuple[Tensor, Tensor]:
    """One more token of causal linear attention: what a decoder keeps is a state of fixed size, however long the past.

    Args:
        query: (B, H, 1, d_k); key: (B, H or H_kv, 1, d_k); value: (B, H or H_kv, 1, d_v).
        state: (B, H, features, d_v + 1) of the tokens before, float32 at least; None at the first token. It is not changed.

    Returns:
        output (B, H, 1, d_v), and the new state.

    Raises:
        TypeError, ValueError: as in `linear_attention`; more than one token; a state of another shape.

    Source: Katharopoulos et al. 2020, equations 16 to 20.
    """
    if query.size(-2) != 1 or key.size(-2) != 1:
        raise ValueError(f"a step takes one token, got {query.size(-2)} queries and {key.size(-2)} keys. Use linear_attention.")
    dtype = autocast_inputs(query)[0].dtype
    query, key, value = _features(query, key, value, None, enable_gqa, feature_map, is_causal=True)
    shape = (*query.shape[:-2], query.size(-1), value.size(-1))
    if state is not None and state.shape != shape:
        raise ValueError(f"the state must be (B, H, features, d_v + 1) = {tuple(shape)}, got {tuple(state.shape)}.")
    with without_autocast(query.device):
        added = key.transpose(-2, -1) @ value  # an outer product, (features, 1) @ (1, d_v + 1)
        state = added if state is None else state + added
        return _normalize(query @ state).to(dtype), state


def _chunked(query: Tensor, key: Tensor, value: Tensor, size: int) -> Tensor:
    """Within a chunk all products, as in the parallel form; for what came before it, the state at its start."""
    L = query.size(-2)
    q, k, v = (pad(x, size).unflatten(-2, (-1, size)) for x in (query, key, value))  # (B, H, n, size, features)
    states = (k.transpose(-2, -1) @ v).cumsum(dim=2)  # (B, H, n, features, d_v + 1), at the end of each chunk
    states = F.pad(states, (0, 0, 0, 0, 1, 0))[:, :, :-1]  # at its start: 0 for the first
    sums = (q @ k.transpose(-2, -1)).tril() @ v + q @ states
    return sums.flatten(2, 3)[:, :, :L]


def _recurrent(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One token after the other, as a recurrent network: the state is all that is carried along."""
    state = query.new_zeros(*query.shape[:-2], query.size(-1), value.size(-1))
    sums = []
    for q, k, v in zip(query.split(1, dim=-2), key.split(1, dim=-2), value.split(1, dim=-2), strict=True):
        state = state + k.transpose(-2, -1) @ v  # an outer product, (features, 1) @ (1, d_v + 1)
        sums.append(q @ state)
    return torch.cat(sums, dim=-2)


def _normalize(sums: Tensor) -> Tensor:
    """Divide the sums of values by the sum of weights, their last entry; a row without weight stays 0."""
    values, weight = sums[..., :-1], sums[..., -1:]
    return values / weight.masked_fill(weight == 0.0, 1.0)


def _features(query, key, value, attn_mask, enable_gqa, feature_map, is_causal) -> tuple[Tensor, Tensor, Tensor]:
    """φ(query), φ(key) and the value with a 1 appended, all of H heads, in float32 at least; masked keys have no features.

    Those of each query are divided by their sum, and so are those of all keys, unless a query sees only some. Both cancel.
    """
    if not query.dim() == key.dim() == value.dim() == 4:
        raise ValueError(f"linear attention takes (B, H, L, d), four axes, got {shapes(query, key, value)}.")
    query, key, value = autocast_inputs(query, key, value)
    scores_shape = check_inputs(query, key, value, 0.0, enable_gqa)
    mask = key_mask(attn_mask, scores_shape, "linear attention")
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"linear attention takes a boolean mask: there are no scores to add a float mask to, got {mask.dtype}.")
    if enable_gqa:
        key, value = (x.repeat_interleave(query.size(1) // x.size(1), dim=1) for x in (key, value))
    wide = torch.promote_types(query.dtype, torch.float32)
    query, key, value = (x.to(wide).expand(*scores_shape[:2], -1, -1) for x in (query, key, value))
    hidden = None if mask is None else ~mask.transpose(-2, -1)  # (B or 1, H or 1, S, 1)
    with without_autocast(query.device):
        query = _divided(query, None, feature_map, (-1,))
        if not is_causal:
            key = _divided(key, hidden, feature_map, (-2, -1))
        else:
            key = feature_map(key)
            key = key if hidden is None else key.masked_fill(hidden, 0.0)
    return query, key, F.pad(value, (0, 1), value=1.0)


def _divided(x: Tensor, hidden: Tensor | None, feature_map: FeatureMap, dim: tuple[int, ...]) -> Tensor:
    """Features over their sum along some axes. The sum is a constant here: it cancels, and with it its gradient."""
    exponents = getattr(feature_map, "exponents", None)
    features = feature_map(x) if exponents is None else exponents(x)
    if hidden is not None:
        features = features.masked_fill(hidden, 0.0 if exponents is None else -torch.inf)
    limits = torch.finfo(features.dtype)
    if exponents is not None:
        return (features - features.detach().logsumexp(dim, keepdim=True).clamp(min=limits.min)).exp()
    total = features.detach().abs().sum(dim, keepdim=True)
    # Not by the last tiny numbers, since a gradient is divided as well, and needs room.
    return features / total.clamp(min=1024 * limits.tiny).masked_fill(total == 0.0, 1.0)
