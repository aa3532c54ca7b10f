"""Where a token stands: sinusoidal, learned and rotary encodings, and ALiBi. Attention alone sees a set, not a sequence.

Positions are numbers, and always explicit:
    offset      the L tokens at hand stand at offset … offset + L − 1, after `offset` tokens that a cache already holds
    positions   or they are given, (L,), (1, L) or (B, L), as in a left-padded batch, whose sequences start at different
                columns: `positions_from_padding` finds them
Rotary encodings and ALiBi see only how far apart two tokens stand. Padding on the left shifts both, so they need neither.

What is not learned is derived from Python numbers, in float64, and used in float32 (float64 beside float64 inputs). It is
neither a parameter nor a buffer: a state dict does not hold it, and `.to(torch.bfloat16)` does not round it, which at position
4095 would turn a cosine by more than 1.

Shapes: B sequences, H heads, L queries or tokens, S keys; d_model the width of a token, d_head the width of a head.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_tables: dict[tuple, Tensor] = {}  # what `_kept` has made


def positions_from_padding(mask: Tensor) -> Tensor:
    """Number the real tokens of padded sequences 0, 1, 2, …, whichever side the padding is on.

    Args:
        mask: (B, 1, 1, S) boolean, True = a real token, as from `masks.padding`.

    Returns:
        (B, S) integers. Padding gets the number of its real neighbor on the left, or 0.

    Raises:
        ValueError: a mask of another shape or type, naming it.
    """
    if mask.dim() != 4 or mask.shape[1:3] != (1, 1) or mask.dtype != torch.bool:
        raise ValueError(f"a padding mask is boolean of shape (B, 1, 1, S), got {mask.dtype} of shape {tuple(mask.shape)}.")
    return (mask[:, 0, 0].cumsum(dim=-1) - 1).clamp(min=0)


class SinusoidalEncoding(nn.Module):
    """Adds sines and cosines of the position, from a turn every 2π tokens to one every 2π · base.

    PE[p, 2i] = sin(p / base^(2i / d_model)),  PE[p, 2i + 1] = cos(p / base^(2i / d_model)). An odd width ends with a sine.

    The table's values have a mean square of ½. It can be told from the token's own vector, and that from it, where both are of
    one size: hence the factor √d_model on embeddings of deviation 1/√d_model.

    Args:
        d_model: width of a token's vector, at least 1; odd widths too.
        base: ratio of the slowest to the fastest turn.

    Raises:
        ValueError: a width below 1, a base not above 0.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def __init__(self, d_model: int, base: float = 10000):
        super().__init__()
        _check_width("d_model", d_model, base)
        self.d_model, self.base = d_model, base

    def forward(self, x: Tensor, *, offset: int = 0, positions: Tensor | None = None) -> Tensor:
        """x (B, L, d_model) -> x + encoding of its positions, in the dtype of x."""
        _check_input("d_model", self.d_model, x, positions, axes=3)
        table = self.table(x.size(-2), offset=offset, positions=positions, dtype=_wide(x), device=x.device)
        return (x + table).to(x.dtype)

    def table(self, L: int, *, offset: int = 0, positions: Tensor | None = None, dtype=torch.float32, device=None) -> Tensor:
        """The encodings themselves: (L, d_model), or (B, L, d_model) where `positions` differ by sequence."""
        cos, sin = _cos_sin(self.d_model, self.base, L, offset, positions, dtype, device)
        return torch.stack((sin, cos), dim=-1).flatten(-2)[..., : self.d_model]  # (…, L, ⌈d/2⌉, 2) -> (…, L, d)

    def extra_repr(self) -> str:
        """What a printed model says of it."""
        return f"{self.d_model}, base={self.base}"


class LearnedEncoding(nn.Module):
    """Adds a learned vector for each position. There are max_len of them, and nothing beyond.

    They start at random with the mean square of a sinusoidal table, ½.

    Args:
        max_len: number of positions.
        d_model: width of a token's vector.

    Raises:
        ValueError: a size below 1.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1.
    """

    def __init__(self, max_len: int, d_model: int):
        super().__init__()
        _check_width("max_len", max_len)
        _check_width("d_model", d_model)
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.weight, std=0.5**0.5)

    @property
    def max_len(self) -> int:
        """Number of positions."""
        return self.weight.size(0)

    def forward(self, x: Tensor, *, offset: int = 0, positions: Tensor | None = None) -> Tensor:
        """x (B, L, d_model) -> x + encoding of its positions.

        Raises:
            ValueError: a position past the table, naming both lengths.
        """
        _check_input("d_model", self.weight.size(1), x, positions, axes=3)
        L = x.size(-2)
        if positions is None:
            self._check_reach(offset, offset + L - 1, L)
            return x + self.weight[offset : offset + L]
        _check_positions(positions, L)
        if positions.numel() and not (positions.is_meta or torch.compiler.is_compiling()):  # a look would break its graph
            self._check_reach(int(positions.min()), int(positions.max()), L)
        return x + F.embedding(positions, self.weight)

    def resized(self, new_length: int) -> "LearnedEncoding":
        """A new encoding for `new_length` positions, interpolated linearly between the old: first and last stay what they were.

        Raises:
            ValueError: a length below 1.
        """
        with torch.device("meta"):  # nothing is drawn
            new = LearnedEncoding(new_length, self.weight.size(1)).train(self.training)
        columns = F.interpolate(self.weight.detach().T[None], new_length, mode="linear", align_corners=True)  # (1, d_model, …)
        new.weight = nn.Parameter(columns[0].T.contiguous(), self.weight.requires_grad)
        return new

    def _check_reach(self, first: int, last: int, L: int) -> None:
        if first < 0 or last >= self.max_len:
            raise ValueError(
                f"a sequence of length {L} at positions {first} … {last} does not fit a table of {self.max_len} learned "
                f"positions, 0 … {self.max_len - 1}. Cut the sequence, build LearnedEncoding(max_len={last + 1}, …) and train "
                f"it, or take resized({last + 1}), which interpolates."
            )

    def extra_repr(self) -> str:
        """What a printed model says of it."""
        return f"{self.max_len}, {self.weight.size(1)}"


class RotaryEncoding(nn.Module):
    """Turns each pair of numbers of queries and keys by an angle that grows with the position.

    The product of a query at position m and a key at n then depends on the two and on m − n alone. Two layouts are in use:
    interleaved pairs (x0, x1), (x2, x3), …, as in the paper, and half-split pairs (x0, x_{d/2}), (x1, x_{d/2+1}), …, as in
    Llama checkpoints for Hugging Face. `half_split_order` leads from one to the other.

    Args:
        d_head: width of a head's queries and keys, even.
        base: ratio of the slowest to the fastest turn.
        interleaved: which numbers form a pair.

    Raises:
        ValueError: an odd width or one below 2, a base not above 0.

    Source: Su et al. 2021, "RoFormer", section 3.2.2 and equation 34.
    """

    def __init__(self, d_head: int, base: float = 10000, *, interleaved: bool = True):
        super().__init__()
        _check_width("d_head", d_head, base)
        if d_head % 2:
            raise ValueError(f"rotary encodings turn pairs of numbers, so d_head is even, got {d_head}. Use {d_head + 1}.")
        self.d_head, self.base, self.interleaved = d_head, base, interleaved

    def forward(self, x: Tensor, *, offset: int = 0, positions: Tensor | None = None) -> Tensor:
        """Queries or keys x (B, H, L, d_head) -> the same, turned, in the dtype of x."""
        _check_input("d_head", self.d_head, x, positions, axes=4)
        cos, sin = _cos_sin(self.d_head, self.base, x.size(-2), offset, positions, _wide(x), x.device)
        if cos.dim() == 3:
            cos, sin = cos[:, None], sin[:, None]  # (B, L, d/2) -> (B, 1, L, d/2): the same for every head
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if self.interleaved else x.chunk(2, dim=-1)
        turned = a * cos - b * sin, b * cos + a * sin
        turned = torch.stack(turned, dim=-1).flatten(-2) if self.interleaved else torch.cat(turned, dim=-1)
        return turned.to(x.dtype)

    def cos_sin(self, L: int, *, offset: int = 0, positions: Tensor | None = None, dtype=torch.float32, device=None):
        """Cosines and sines of the angles, each (L, d_head / 2), or (B, L, d_head / 2) where `positions` differ by sequence."""
        tables = _cos_sin(self.d_head, self.base, L, offset, positions, dtype, device)
        return tuple(x.clone() for x in tables)  # what is kept belongs to every encoding

    def extra_repr(self) -> str:
        """What a printed model says of it."""
        return f"{self.d_head}, base={self.base}, interleaved={self.interleaved}"


def half_split_order(d_head: int, *, device=None) -> Tensor:
    """The permutation between the two layouts of rotary pairs: `x[..., order]` is half-split where x is interleaved.

    It fits rows of a projection too: `weight.unflatten(0, (H, d_head))[:, order].flatten(0, 1)`; `order.argsort()` leads back.

    Returns:
        (d_head,) integers: 0, 2, 4, …, 1, 3, 5, …

    Raises:
        ValueError: an odd width or one below 2.
    """
    RotaryEncoding(d_head)  # refuses a width that is not made of pairs
    return torch.arange(d_head, device=device).view(-1, 2).T.flatten()


def alibi_slopes(num_heads: int, *, dtype=torch.float32, device=None) -> Tensor:
    """How fast each head's scores fall with distance: 2^(−8/H), 2^(−16/H), … for H heads, a power of two.

    Any other number takes those of the power of two below, and then every other one of the power of two above.

    Returns:
        (num_heads,) of the dtype.

    Raises:
        ValueError: fewer than 1 head.

    Source: Press et al. 2022, "Train Short, Test Long", section 3; other numbers of heads as in the authors' code.
    """
    _check_width("num_heads", num_heads)
    below = 1 << (num_heads.bit_length() - 1)
    parts = [(i + 1) / below for i in range(below)] + [(i + 0.5) / below for i in range(num_heads - below)]
    return torch.tensor([2 ** (-8 * part) for part in parts], dtype=dtype, device=device)


def alibi_bias(
    num_heads: int, L: int, S: int | None = None, *, offset: int | None = None, dtype=torch.float32, device=None
) -> Tensor:
    """ALiBi as the float mask that it is: −slope · distance, added to the scores. Position is seen in nothing else.

    Args:
        num_heads: heads of the query.
        L: number of queries.
        S: number of keys; L when not given.
        offset: position of the first query among the keys; S − L when not given, as in `masks.causal`.
        dtype: float64 beside queries in float64, float32 beside all others.

    Returns:
        (1, H, L, S) of the dtype, 0 where a query meets its own position and falling on either side. It forbids nothing: join
        it with `masks.causal` for a model that may not look ahead.

    Raises:
        ValueError: fewer than 1 head, a length below 0.

    Source: Press et al. 2022, "Train Short, Test Long", section 3.
    """
    S = L if S is None else S
    if L < 0 or S < 0:
        raise ValueError(f"L and S are numbers of positions, at least 0, got {L} and {S}.")
    offset = S - L if offset is None else offset
    queries = torch.arange(offset, offset + L, device=device)
    distance = (queries[:, None] - torch.arange(S, device=device)).abs()  # (L, S)
    # A tensor made of Python's numbers has to wait for a GPU to copy them: once, and not at each call.
    return _kept(alibi_slopes, device, num_heads, dtype=dtype)[None, :, None, None] * -distance


def _cos_sin(width, base, L, offset, positions, dtype, device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of position / base^(2i / width) for i < ⌈width / 2⌉: (L, ⌈width / 2⌉), or with a batch axis."""
    if positions is not None:
        _check_positions(positions, L)
        return _turn(positions if device is None else positions.to(device), width, base, dtype)
    if offset < 0:
        raise ValueError(f"offset is the number of tokens that went before, at least 0, got {offset}.")
    if torch.compiler.is_compiling():  # no more than is asked for
        return _turn(torch.arange(offset, offset + L, device=device), width, base, dtype)
    length = max(64, 1 << (offset + L - 1).bit_length())  # a power of two, so that a growing sequence asks for few
    return _kept(_table, device, length, width, base, dtype=dtype)[:, offset : offset + L].unbind()


def _kept(make: Callable[..., Tensor], device, *args, dtype: torch.dtype) -> Tensor:
    """What `make` gives, made once for the same arguments and shared: nothing to hand out."""
    device = torch.get_default_device() if device is None else torch.device(device)
    if torch.compiler.is_compiling():  # the compiler folds it into its graph; a memory outside of it would break that
        return make(*args, dtype=dtype, device=device)
    key = (make, *args, dtype, device)
    if key not in _tables:
        with torch.inference_mode(False):  # what is born in inference mode could not be saved for a later backward pass
            made = make(*args, dtype=dtype, device=device)
        if type(made) is not Tensor:  # a stand-in without numbers (FakeTensor): not for anyone else
            return made
        _tables[key] = made
    return _tables[key]


def _table(length: int, width: int, base: float, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.stack(_turn(torch.arange(length, device="cpu"), width, base, dtype)).to(device)


def _turn(positions: Tensor, width: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    # Float32 alone would be off by 2e-4 at position 4095: the angle is large, and its rounding error with it.
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    angles = positions[..., None] * float(base) ** -exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _check_width(name: str, width: int, base: float = 1.0) -> None:
    if width < 1:
        raise ValueError(f"{name} is at least 1, got {width}.")
    if not base > 0:
        raise ValueError(f"base is a positive number, got {base}.")


def _check_input(name: str, width: int, x: Tensor, positions: Tensor | None, axes: int) -> None:
    shape, given = tuple(x.shape), () if positions is None else tuple(positions.shape)
    if len(shape) < 2 or shape[-1] != width:
        raise ValueError(f"x must end with (L, {name} = {width}), got shape {shape}.")
    if len(given) == 2 and (len(shape) != axes or given[0] not in (1, shape[0])):
        raise ValueError(f"positions (B or 1, L) go with x of {axes} axes, B the first of them, got {given} and x {shape}.")


def _check_positions(positions: Tensor, L: int) -> None:
    if positions.dim() not in (1, 2) or positions.size(-1) != L:
        raise ValueError(f"positions must be (L,) or (B, L) with L = {L} tokens, got shape {tuple(positions.shape)}.")
