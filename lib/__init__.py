"""Attention, Measured: attention written to be read, and right where well-known code is not.

One module, one subject; import them by name::

    from lib import masks
    from lib.attention import SelfAttention, scaled_dot_product_attention
    from lib.multihead import MultiHeadAttention
    from lib.transformer import DecoderLM, Transformer, TransformerConfig

From the ground up: `masks`, `positional`, `cache`, `inputs` · `tiled` · `attention` · `multihead`, `efficient` · `layers` ·
`stacks` · `transformer` · `generation`; `interop` and `diagnostics` stand beside. Arrows point down only.

Everything here needs torch and nothing else. `lib.study` (data, training, plots, explorers, exercises) serves the chapters
and is never imported by the library itself.
"""
