"""Attention that costs less than n² by looking at less, or by giving up the softmax. One file for each way.

    way         sees                                             work                    file
    windowed    the w keys around it                             n · w                   windowed.py
    strided     itself and every s-th key                        n · n/s                 strided.py
    segmented   its segment of c whole, the others' summaries    n · (c + n/c)           segmented.py
    linear      everything, through a sum of fixed size          n · features · d_v      linear.py

The first two are exact attention under a mask of `lib.masks`, without the work for what it hides. The last two are other
functions than softmax attention. (Exact attention over everything, in memory O(n), is `lib.tiled`.)

All take query, key and value as `lib.attention.scaled_dot_product_attention` does, (B, H, L, d), in the middle of a model, and
any length. They are functions; the one with something to learn has a thin module, `SegmentedAttention`.
"""

from lib.efficient.linear import elu_features, linear_attention, linear_attention_step, random_features, relu_features
from lib.efficient.segmented import SegmentedAttention, segmented_attention
from lib.efficient.strided import strided_attention
from lib.efficient.windowed import windowed_attention

__all__ = [
    "SegmentedAttention",
    "elu_features",
    "linear_attention",
    "linear_attention_step",
    "random_features",
    "relu_features",
    "segmented_attention",
    "strided_attention",
    "windowed_attention",
]
