"""Exercise 2: the shape of each tensor of self-attention, for B=2, n=5, d_model=12, d_k=4, d_v=6."""

from lib.study.exercises.table import Entry, ShapeTable

_W = "width going in, width coming out"
_SCORES = "batch, the token that asks, the token that is asked"
_LINEAR = "that is how nn.Linear stores a weight, (out, in). Here W stands in x @ W, so it is (in, out)."
_NO_BATCH = "the batch is missing. The two sequences keep apart, so it stays in front."
_PER_SEQUENCE = "one weight serves every sequence, so it has no batch axis."

_KEYS_AND_QUERIES = {
    (5, 4): _NO_BATCH,
    (2, 5, 12): "that is x. The map takes each token from d_model to d_k.",
    (2, 5, 6): "that is the width of the value. Query and key share d_k, because their dot product is taken.",
    (2, 4, 5): "that is the transpose. It comes with the product Q Kᵀ; here each row is still a token.",
}
_SQUARES = {
    (5, 5): _NO_BATCH,
    (2, 4, 4): "that is KᵀQ: widths against widths. Q Kᵀ has tokens against tokens, so d_k is summed away.",
    (2, 12, 12): "d_model was summed over long ago. Q Kᵀ has tokens against tokens.",
    (2, 5, 4): "that is still Q. The product with Kᵀ sums d_k away and leaves one number for each pair of tokens.",
    (2, 5, 12): "that is x. There is one number for each pair of tokens.",
    (2, 2, 5, 5): "one batch axis is enough: a sequence is only matched with itself.",
    (10, 10): "the batch was joined with the length, so tokens would attend across sequences.",
    (2, 5): "each token asks every token, so there is a row of numbers for each, not one number.",
}

SHAPES = ShapeTable(
    hint="B=2, n=5, d_model=12, d_k=4, d_v=6. Begin with x: (batch, tokens, width). "
    "Then Q = x @ W_q, where W_q is (width going in, width coming out).",
    why="Lengths meet in the scores and widths in the maps; whoever writes the shapes down first seldom mixes them up.",
    entries={
        "x": Entry((2, 5, 12), "batch, token, width in the model", {(5, 12): _NO_BATCH}),
        "W_q": Entry((12, 4), _W, {(4, 12): _LINEAR, (2, 12, 4): _PER_SEQUENCE, (12, 12): "the query is d_k wide."}),
        "W_k": Entry(
            (12, 4),
            _W,
            {
                (4, 12): _LINEAR,
                (2, 12, 4): _PER_SEQUENCE,
                (12, 12): "the key is d_k wide.",
                (12, 6): "that is the value's width. A key is as wide as a query, because their dot product is taken.",
            },
        ),
        "W_v": Entry(
            (12, 6),
            _W,
            {
                (6, 12): _LINEAR,
                (2, 12, 6): _PER_SEQUENCE,
                (12, 12): "the value is d_v wide.",
                (12, 4): "that is the width of query and key. The value is matched with nothing and has its own, d_v.",
            },
        ),
        "Q": Entry((2, 5, 4), "batch, token, width of a query", _KEYS_AND_QUERIES),
        "K": Entry((2, 5, 4), "batch, token, width of a key", _KEYS_AND_QUERIES),
        "V": Entry(
            (2, 5, 6),
            "batch, token, width of a value",
            {
                (5, 6): _NO_BATCH,
                (2, 5, 12): "that is x. The map takes each token from d_model to d_v.",
                (2, 5, 4): "that is the width of query and key. The value has its own, d_v.",
            },
        ),
        "scores": Entry((2, 5, 5), _SCORES, _SQUARES),
        "weights": Entry(
            (2, 5, 5),
            _SCORES,
            _SQUARES | {(2, 5, 6): "that is the output. The weights are the softmax of the scores, which keeps their shape."},
        ),
        "output": Entry(
            (2, 5, 6),
            "batch, token, width of a value",
            {
                (5, 6): _NO_BATCH,
                (2, 5, 5): "those are the weights. They are multiplied with V, which sums over the tokens asked.",
                (2, 5, 4): "d_k was for matching alone. The output is a mean of values, so it is as wide as a value.",
                (2, 5, 12): "the output is a mean of values, so it is as wide as a value. It is d_model wide only where "
                "d_v = d_model, or after an output projection, which this head does not have.",
            },
        ),
    },
)
