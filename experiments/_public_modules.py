"""Public attention modules, each built tiny and random by its own constructor, and how it is called. Nothing is downloaded."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported

V, D, H, L = 19, 32, 4, 8  # tokens to choose from, width, heads, length


@dataclass
class Subject:
    """A module of a package, and how it is called: the arguments of `diagnose`. Without `takes_keep` it knows no padding."""

    name: str
    module: nn.Module
    x: Tensor
    call: Callable
    causal: bool = False
    positional: bool = False
    step: Callable | None = None
    takes_keep: bool = True


def ignored(keep: Tensor | None) -> Tensor | None:
    """True = padding, as torch's modules want it."""
    return None if keep is None else ~keep


def torchs(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    def attend(m, x, keep, **options):
        return m(x, x, x, key_padding_mask=ignored(keep), **options)[0]

    def layer(m, x, keep):
        return m(x, src_key_padding_mask=ignored(keep))

    def causal(m, x, keep):
        return m(x, nn.Transformer.generate_square_subsequent_mask(x.size(1)).isinf(), src_key_padding_mask=ignored(keep))

    def new_layer():
        return nn.TransformerEncoderLayer(D, H, 64, batch_first=True)

    without = nn.MultiheadAttention(D, H, dropout=0.1, batch_first=True)
    yield Subject("MultiheadAttention, no weights", without, x, lambda m, x, keep: attend(m, x, keep, need_weights=False))
    yield Subject("MultiheadAttention, weights", nn.MultiheadAttention(D, H, dropout=0.1, batch_first=True), x, attend)
    yield Subject("TransformerEncoderLayer", new_layer(), x, layer)
    yield Subject("TransformerEncoderLayer, causal mask", new_layer(), x, causal, True)
    hint = new_layer()
    yield Subject(
        "TransformerEncoderLayer, is_causal alone", hint, x, lambda m, x, _: m(x, is_causal=True), True, takes_keep=False
    )
    yield Subject("TransformerEncoder", nn.TransformerEncoder(new_layer(), 2), x, layer)


def x_transformers(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    import x_transformers as package

    def call(m, x, keep):
        return m(x, mask=keep)

    def step(m, x, state):  # it wants the whole sequence again, and computes its end
        seen, cache = (x, None) if state is None else (torch.cat([state[0], x], dim=1), state[1])
        y, cache = m(seen, cache=cache, return_intermediates=True)
        return y[:, -x.size(1) :], (seen, cache)

    for name, options in {"learned": {}, "rotary": {"rotary_pos_emb": True}, "ALiBi": {"alibi_pos_bias": True}}.items():
        layers = package.Decoder(dim=D, depth=2, heads=H, attn_dropout=0.1, ff_dropout=0.1, **options)
        model = package.TransformerWrapper(num_tokens=V, max_seq_len=512, attn_layers=layers)
        yield Subject(f"Decoder, {name} positions", model, tokens, call, True, True, step)
    yield Subject("Encoder", package.Encoder(dim=D, depth=2, heads=H, attn_dropout=0.1, ff_dropout=0.1), x, call)


def transformers(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    import transformers as package

    def call(m, x, keep):
        return m(x, attention_mask=None if keep is None else keep.long())

    def step(m, x, cache):
        answer = m(x, cache=cache, use_cache=True)
        return answer[0], answer.cache

    shared = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 0}
    sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 64, **shared}
    yield Subject("BertModel", package.BertModel(package.BertConfig(**sizes)), tokens, call, False, True)
    gpt2 = package.GPT2LMHeadModel(package.GPT2Config(n_embd=D, n_layer=2, n_head=H, **shared))
    yield Subject("GPT2LMHeadModel", gpt2, tokens, call, True, True, step)
    llama = package.LlamaForCausalLM(package.LlamaConfig(num_key_value_heads=2, **sizes))
    yield Subject("LlamaForCausalLM", llama, tokens, call, True, True, step)


def labml_nn(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    from labml_nn.transformers.mha import MultiHeadAttention

    def call(m, x, keep, causal=False):  # length first; mask[i, j, b]: query i sees key j
        y, n = x.transpose(0, 1), x.size(1)
        mask = torch.ones(n, n, 1, dtype=torch.bool)
        mask = torch.ones(n, n, dtype=torch.bool).tril()[:, :, None] if causal else mask
        mask = mask if keep is None else mask & keep.T[None]
        return m(query=y, key=y, value=y, mask=mask).transpose(0, 1)

    yield Subject("MultiHeadAttention", MultiHeadAttention(H, D), x, call)
    yield Subject(
        "MultiHeadAttention, causal mask", MultiHeadAttention(H, D), x, lambda m, x, keep: call(m, x, keep, True), True
    )


def performer_pytorch(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    from performer_pytorch import SelfAttention

    def module(causal):
        return SelfAttention(D, heads=H, dim_head=8, causal=causal, dropout=0.1)

    yield Subject("SelfAttention", module(False), x, lambda m, x, keep: m(x, mask=keep))
    yield Subject("SelfAttention, causal", module(True), x, lambda m, x, keep: m(x, mask=keep), True)


def local_attention(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    from local_attention import LocalMHA, LocalTransformer

    def call(m, x, keep):
        return m(x, mask=keep)

    sizes = {"dim": D, "heads": H, "dim_head": 8}
    for causal in (False, True):
        module = LocalMHA(window_size=4, causal=causal, dropout=0.1, **sizes)
        yield Subject(f"LocalMHA, {'causal' if causal else 'both ways'}", module, x, call, causal, True)
    model = LocalTransformer(num_tokens=V, max_seq_len=64, depth=2, local_attn_window_size=4, **sizes)
    yield Subject("LocalTransformer", model, tokens, call, True, True)


def linear_attention_transformer(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    for causal in (False, True):
        name = "SelfAttention, causal" if causal else "SelfAttention"
        yield Subject(name, SelfAttention(D, H, causal=causal), x, lambda m, x, keep: m(x, input_mask=keep), causal)


def nystrom_attention(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    from nystrom_attention import NystromAttention

    module = NystromAttention(D, dim_head=8, heads=H, num_landmarks=4, residual=False, dropout=0.1)
    yield Subject("NystromAttention", module, x, lambda m, x, keep: m(x, mask=keep), False, True)


def linformer(x: Tensor, tokens: Tensor) -> Iterator[Subject]:
    from linformer import LinformerSelfAttention

    module = LinformerSelfAttention(D, seq_len=L, k=4, heads=H, dropout=0.1)
    yield Subject("LinformerSelfAttention", module, x, lambda m, x, _: m(x), False, True, takes_keep=False)


PACKAGES = {
    "torch": torchs,
    "x-transformers": x_transformers,
    "transformers": transformers,
    "labml-nn": labml_nn,
    "performer-pytorch": performer_pytorch,
    "local-attention": local_attention,
    "linear-attention-transformer": linear_attention_transformer,
    "nystrom-attention": nystrom_attention,
    "linformer": linformer,
}
