"""Writing text: ours with the cache against ours without it, and against Hugging Face's `generate` on the same weights.

    python benchmarks/generation.py                 # CPU, one thread, float32
    python benchmarks/generation.py --device cuda   # bfloat16

Prints a Markdown table; README.md beside this file says how to read it. It asserts nothing about time, but first checks that
every contender writes the same text, and stops where one does not.
"""

from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median

import _timing
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lib.generation import generate
from lib.transformer import DecoderLM, TransformerConfig


@dataclass(frozen=True)
class Size:
    """How large a GPT-2: of a tiny one the weights stay in the processor's cache, of a small one they may not."""

    vocabulary: int
    d_model: int
    heads: int
    layers: int
    positions: int = 512


SIZES = {"tiny": Size(1000, 128, 4, 4), "small": Size(5000, 256, 8, 6)}
PROMPT, NEW = 16, 256
ROWS = (("greedy", 1), ("greedy", 8), ("beam", 1))  # strategy, and how many times --batch
BEAMS = 4
TIMES = ("ours, no cache", "Hugging Face", "ours")
RATIOS = (("ours, no cache", "ours"), ("Hugging Face", "ours"), ("ours again", "ours"))


def gpt2(size: Size, options: Namespace) -> DecoderLM:
    """A model of GPT-2's shape with random weights, spread so far that no two tokens are nearly as likely."""
    config = TransformerConfig(
        size.vocabulary,
        d_model=size.d_model,
        num_heads=size.heads,
        num_decoder_layers=size.layers,
        dim_feedforward=4 * size.d_model,
        dropout=0.0,
        activation="gelu",
        norm_first=True,
        positional="learned",
        max_len=size.positions,
        scale_embeddings=False,
    )
    model = DecoderLM(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return model.to(options.device, options.dtype).eval()


def hugging_face(ours: DecoderLM, size: Size, options: Namespace) -> nn.Module:
    """Their GPT-2 with the weights of ours. Its matrices stand the other way round: (inputs, outputs)."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": size.vocabulary, "n_positions": size.positions}
    sizes |= {"n_embd": size.d_model, "n_head": size.heads, "n_layer": size.layers}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, **special, activation_function="gelu"))
    table = ours.embedding.tokens.weight
    state = {
        "transformer.wte.weight": table,
        "transformer.wpe.weight": ours.embedding.positions.weight,
        "lm_head.weight": table,
    }
    parts = {
        "ln_1": "norm1",
        "ln_2": "norm2",
        "attn.c_attn": "self_attn.in_proj",
        "attn.c_proj": "self_attn.out_proj",
        "mlp.c_fc": "feed_forward.linear1",
        "mlp.c_proj": "feed_forward.linear2",
    }
    modules = {
        f"h.{i}.{name}": layer.get_submodule(part)
        for i, layer in enumerate(ours.decoder.layers)
        for name, part in parts.items()
    }
    for name, module in {**modules, "ln_f": ours.decoder.norm}.items():
        weight = module.weight.T if isinstance(module, nn.Linear) else module.weight
        state |= {f"transformer.{name}.weight": weight, f"transformer.{name}.bias": module.bias}
    theirs.load_state_dict(state)
    return theirs.to(options.device, options.dtype).eval()


def build_calls(ours: DecoderLM, theirs: nn.Module | None, strategy: str, prompt: Tensor, new: int) -> _timing.Calls:
    """One function for each contender: it continues the prompt by that many tokens."""
    beams = BEAMS if strategy == "beam" else 1

    def run_ours(use_cache: bool) -> _timing.Answer:
        return {"tokens": generate(ours, prompt, new, strategy=strategy, num_beams=beams, use_cache=use_cache)}

    def run_theirs() -> _timing.Answer:
        lengths = {"max_new_tokens": new, "min_new_tokens": new}
        tokens = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, num_beams=beams, **lengths)
        return {"tokens": tokens[:, prompt.size(1) :]}

    calls = {"ours": partial(run_ours, True), "ours again": partial(run_ours, True), "ours, no cache": partial(run_ours, False)}
    return calls if theirs is None else {**calls, "Hugging Face": run_theirs}


def check(calls: _timing.Calls) -> None:
    """Stop at a contender that writes another text."""
    expected = calls["ours"]()["tokens"]
    for name, call in calls.items():
        tokens = call()["tokens"]
        if tokens.shape != expected.shape or not torch.equal(tokens, expected):
            raise SystemExit(
                f"{name} writes another text than ours: {tokens[0, :20].tolist()} … and {expected[0, :20].tolist()} …"
            )


def main() -> None:
    parser = _timing.parser(__doc__.splitlines()[0], batch=1, budget=30.0, min_rounds=5)
    parser.add_argument("--new", type=int, default=NEW, help=f"tokens to write, {NEW} when not given")
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES), help="sizes of the model")
    options = parser.parse_args()
    header = _timing.start(options, "transformers")
    new = 32 if options.quick else options.new
    reason = _timing.missing("transformers")

    rows = []
    for name, (strategy, times) in tqdm(list(product(options.models, ROWS)), unit="row"):
        ours = gpt2(SIZES[name], options)
        theirs = None if reason else hugging_face(ours, SIZES[name], options)
        batch = options.batch * times
        prompt = torch.randint(SIZES[name].vocabulary, (batch, PROMPT), device=options.device)
        calls = build_calls(ours, theirs, strategy, prompt, new)
        check(calls)
        labels = {"model": name, "strategy": strategy, "sequences": batch, "new tokens": new}
        row = _timing.measure(calls, options, labels, counted="ours")
        speeds = {name: batch * new / median(row.seconds[name]) for name in TIMES if name in row.seconds}
        row.notes |= {f"{name}, tokens/s": f"{speed:.0f}" for name, speed in speeds.items()}
        rows.append(row)
    print(f"{header}\n\n{_timing.table(rows, TIMES, RATIOS)}")
    if reason:
        print(f"\n{reason}")


if __name__ == "__main__":
    main()
