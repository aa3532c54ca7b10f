"""The weights of every attention in a model, while it runs as it is.

Three ways lead to them, and none touches an output:
    a softmax over the last axis, of three axes or more     its result is noted
    `F.scaled_dot_product_attention`                        query and key are noted, and the weights computed once more
    torch's own attention and encoder layers                run untouched, fast path included, and are asked once more

What forms no such weights is not seen: compiled code, kernels of other packages, linear attention, our tiled backend.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lib.attention import scaled_dot_product_attention
from lib.diagnostics.modes import dropout_at
from lib.multihead import MultiHeadAttention

_SOFTMAX = (torch.softmax, torch.Tensor.softmax, F.softmax)
_UNTOUCHED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Keep the weights of every attention in a model, without changing its outputs by a bit.

        with record_attention(model) as weights:
            model(tokens)
        weights["encoder.layers.0.self_attn"]  # (B, H, L, S)

    It knows our modules, `nn.MultiheadAttention` and torch's layers that hold it, Hugging Face's models with "eager" or
    "sdpa", and any module in plain torch that calls `softmax` or `F.scaled_dot_product_attention`. For weights of our own
    modules that gradients flow through, take `lib.multihead.recorded_weights`.

    Args:
        model: any module; one that is called inside, or holds what is.

    Yields:
        From the name of the submodule whose forward ran it, "" for the model itself, to the weights at its latest call,
        detached and before dropout. A second attention of the same forward is named with " 2" behind, and so on. Keeping them
        takes O(L · S) memory.
    """
    recorder = _Recorder(model)
    handles = [
        nn.modules.module.register_module_forward_pre_hook(recorder.enter),
        nn.modules.module.register_module_forward_hook(recorder.leave, always_call=True),
    ]
    overridden = []
    try:
        for module in model.modules():
            own = [kind for kind in _UNTOUCHED if type(module).forward is kind.forward]
            if own and "forward" not in vars(module):
                module.forward = recorder.run_untouched(module)
                overridden.append(module)
        with recorder:
            yield recorder.weights
    finally:
        for handle in handles:
            handle.remove()
        for module in overridden:
            del module.forward


class _Recorder(TorchFunctionMode):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.weights: dict[str, Tensor] = {}
        self.names = {module: name for name, module in model.named_modules()}
        self.running: list[nn.Module] = []  # innermost last
        self.counts: dict[str, int] = {}  # attentions of the forward that runs, by name
        self.kept = 0  # in all

    def enter(self, module: nn.Module, args: tuple) -> None:
        if module in self.names:
            self.running.append(module)
            self.counts[self.names[module]] = 0

    def leave(self, module: nn.Module, args: tuple, answer: object) -> None:
        if module in self.names and module in self.running:
            while self.running.pop() is not module:
                pass
            if isinstance(module, MultiHeadAttention) and isinstance(answer, tuple) and answer[1] is not None:
                self.weights[self.names[module]] = answer[1].detach()  # with 0 where a row has no key

    def keep(self, name: str, weights: Tensor) -> None:
        self.kept += 1
        self.counts[name] = number = self.counts.get(name, 0) + 1
        self.weights[f"{name} {number}".strip() if number > 1 else name] = weights.detach()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        answer = func(*args, **kwargs)
        if self.running and func in _SOFTMAX:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if answer.dim() >= 3 and dim in (-1, answer.dim() - 1):
                self.keep(self._owner(), answer)
        elif self.running and func is F.scaled_dot_product_attention:
            weights = _of_fused(*args, **kwargs)
            if weights is not None:
                self.keep(self._owner(), weights)
        return answer

    def _owner(self) -> str:
        """The innermost module that runs, or the one around it where that is a bare softmax."""
        return self.names[next((m for m in reversed(self.running) if not isinstance(m, nn.Softmax)), self.running[-1])]

    def run_untouched(self, module: nn.Module):
        """A forward that runs the module's own with no mode in its way, so that it takes the path it always takes."""
        forward = module.forward

        def untouched(*args, **kwargs):
            with torch._C.DisableTorchFunction():
                seen = self.kept
                answer = forward(*args, **kwargs)
                with torch.no_grad():
                    if isinstance(module, nn.MultiheadAttention):
                        self.keep(self.names[module], _of_torch(module, forward, args, kwargs, answer[0]))
                    elif isinstance(module, nn.TransformerEncoderLayer) and seen == self.kept:
                        self.counts.pop(self.names[module.self_attn], None)
                        self.keep(self.names[module.self_attn], _of_fast_layer(module, args, kwargs, answer))
            return answer

        return untouched


@torch.no_grad()
def _of_fused(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False) -> Tensor | None:
    """The weights behind a call of torch's function: ours, which can show them. None where it cannot be said."""
    if any(t.is_nested for t in (query, key, value)):
        return None
    if attn_mask is not None:
        attn_mask = attn_mask.broadcast_to(*query.shape[:-1], key.size(-2))
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa, "need_weights": True}
    return scaled_dot_product_attention(query, key, value, attn_mask, **options)[1]


def _of_torch(module: nn.MultiheadAttention, forward, args: tuple, kwargs: dict, output: Tensor) -> Tensor:
    """(B, H, L, S): the same call once more, with the weights of each head and without dropout."""
    call = inspect.signature(forward).bind(*args, **kwargs)
    call.arguments |= {"need_weights": True, "average_attn_weights": False}
    with dropout_at(module, 0.0):
        weights = forward(*call.args, **call.kwargs)[1]
    # Where it shows weights, torch has NaN in a row without a key, and 0 where it does not and the output stays finite.
    return weights.nan_to_num(0.0) if output.isfinite().all() else weights


def _of_fast_layer(layer: nn.TransformerEncoderLayer, args: tuple, kwargs: dict, output: Tensor) -> Tensor:
    """Torch's fast path has no attention that could be asked: ask it with what the layer would have handed it."""
    call = inspect.signature(nn.TransformerEncoderLayer.forward).bind(layer, *args, **kwargs).arguments
    x, padding = call["src"], call.get("src_key_padding_mask")
    if x.is_nested:  # sequences of unequal length, packed
        lengths = torch.tensor([len(one) for one in x.unbind()], device=x.device)
        x = x.to_padded_tensor(0.0)
        padding = torch.arange(x.size(1), device=x.device) >= lengths[:, None]
        output = output.to_padded_tensor(0.0)
    x = layer.norm1(x) if layer.norm_first else x
    masks = {"attn_mask": call.get("src_mask"), "key_padding_mask": padding}
    forward = type(layer.self_attn).forward.__get__(layer.self_attn)
    return _of_torch(layer.self_attn, forward, (x, x, x), masks, output)
