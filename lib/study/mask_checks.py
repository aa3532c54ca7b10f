"""Checks that find a wrong mask. Each runs an attention that makes its own masks, and gives one figure: what went wrong by how
much, 0 at best. The module is called as `lib.study.mask_faults.MaskedAttention` is.

Every check hides nothing in rounding (float64), and lets all sizes differ: B = 3 sequences, H = 2 heads, L = 6 tokens. None
looks into the module; all compare what it gives for two inputs that should make no difference.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lib.study.mask_faults import FAULTS, NONE, MaskedAttention

B, H, L, D = 3, 2, 6, 8
LENGTHS = torch.tensor([6, 4, 2])
BOUND = 1e-9  # sound code stays below 1e-15; the smallest planted fault is off by 1e-3


def random_input(seed: int = 0, length: int = L) -> Tensor:
    """(B, length, D) of float64."""
    return torch.randn(B, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def shapes(attention: nn.Module) -> float:
    """0 if output and weights have the right shapes, else 1."""
    output, weights = attention(random_input(), lengths=LENGTHS, causal=True)
    return float(output.shape != (B, L, D) or weights.shape != (B, H, L, L))


def row_sums(attention: nn.Module) -> float:
    """How far a row of weights is from summing to 1. Every row here has a key."""
    _, weights = attention(random_input(), lengths=LENGTHS, causal=True)
    return _largest(weights.sum(dim=-1) - 1)


def zeros(attention: nn.Module) -> float:
    """The largest weight on a future key or on padding."""
    _, weights = attention(random_input(), lengths=LENGTHS, causal=True)
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    padding = (torch.arange(L) >= LENGTHS[:, None])[:, None, None, :]  # (B, 1, 1, L)
    return _largest(weights.masked_fill(~(future | padding), 0.0))


def _future_moves(attention: nn.Module) -> float:
    """Change the tokens after the third. The first three may not notice."""
    x = random_input()
    other = torch.cat([x[:, :3], random_input(seed=1)[:, 3:]], dim=1)
    return _largest((attention(x, causal=True)[0] - attention(other, causal=True)[0])[:, :3])


def future_in_training(attention: nn.Module) -> float:
    """`_future_moves` in training mode."""
    return _future_moves(attention.train())


def future_in_eval(attention: nn.Module) -> float:
    """`_future_moves` in eval mode, with gradients enabled."""
    return _future_moves(attention.eval())


def future_no_grad(attention: nn.Module) -> float:
    """`_future_moves` in eval mode and `torch.no_grad`, as a model is used."""
    with torch.no_grad():
        return _future_moves(attention.eval())


def future_gradient(attention: nn.Module) -> float:
    """Gradient of the first three outputs by the tokens after them, in training mode."""
    x = random_input().requires_grad_()
    (gradient,) = torch.autograd.grad(attention.train()(x, causal=True)[0][:, :3].sum(), x)
    return _largest(gradient[:, 3:])


def padding_content(attention: nn.Module) -> float:
    """Write other numbers into the padding. No real token may notice."""
    x = random_input()
    other = x.where(_real()[..., None], random_input(seed=1))
    return _largest((attention(x, lengths=LENGTHS)[0] - attention(other, lengths=LENGTHS)[0])[_real()])


def padding_amount(attention: nn.Module) -> float:
    """Give each sequence alone, without any padding. Its outputs may not differ from those in the batch."""
    x = random_input()
    together = attention(x, lengths=LENGTHS)[0]
    alone = [attention(x[b : b + 1, :n], lengths=LENGTHS[b : b + 1])[0][0] for b, n in enumerate(LENGTHS)]
    return max(_largest(together[b, :n] - alone[b]) for b, n in enumerate(LENGTHS))


def empty_sequence(attention: nn.Module) -> float:
    """A sequence without a token: weights 0, and no gradient that is NaN."""
    x = random_input().requires_grad_()
    output, weights = attention(x, lengths=torch.tensor([6, 4, 0]))
    output.square().sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in attention.parameters())]
    attention.zero_grad()
    return max(_largest(weights[2]), *(_largest(g.isnan().double()) for g in gradients))


def step_by_step(attention: nn.Module) -> float:
    """Token by token with a cache, as text is generated, against all at once; in eval mode and `torch.no_grad`."""
    attention.eval()
    x, cache = random_input(), {}
    with torch.no_grad():
        whole = attention(x, causal=True)[0]
        steps = [attention(x[:, t : t + 1], causal=True, cache=cache)[0] for t in range(L)]
    return _largest(torch.cat(steps, dim=1) - whole)


def formula(attention: nn.Module) -> float:
    """Against the formula, entry by entry, in training mode: causal, with padding."""
    attention.train()
    x = random_input()
    maps = (attention.q_proj, attention.k_proj, attention.v_proj)
    q, k, v = (project(x).detach().unflatten(-1, (H, -1)) for project in maps)  # (B, L, H, d)
    joined = torch.zeros_like(v)
    for b in range(B):
        for h in range(H):
            for i in range(L):
                seen = range(min(i + 1, int(LENGTHS[b])))  # itself and what is before it, padding excepted
                powers = [math.exp(float(q[b, i, h] @ k[b, j, h]) / math.sqrt(q.size(-1))) for j in seen]
                joined[b, i, h] = sum(p / sum(powers) * v[b, j, h] for p, j in zip(powers, seen, strict=True))
    return _largest((attention(x, lengths=LENGTHS, causal=True)[0] - attention.out_proj(joined.flatten(2)))[_real()])


# Words for a check -> the check.
CHECKS: dict[str, Callable[[nn.Module], float]] = {
    "shapes are right": shapes,
    "rows of weights sum to 1": row_sums,
    "hidden weights are 0": zeros,
    "future changed, training mode": future_in_training,
    "future changed, eval mode": future_in_eval,
    "future changed, eval and no_grad": future_no_grad,
    "gradient from the future is 0": future_gradient,
    "content of the padding changed": padding_content,
    "alone as in the batch": padding_amount,
    "empty sequence: 0, no NaN": empty_sequence,
    "step by step as all at once": step_by_step,
    "equals the formula, training mode": formula,
}


def found(check: str, attention: nn.Module) -> bool:
    """Whether a check finds something wrong. The module's mode is left as it was."""
    was_training = attention.training
    with torch.enable_grad():
        figure = CHECKS[check](attention)
    attention.train(was_training)
    return not figure <= BOUND  # NaN is found too


def table(faults: list[str] | None = None) -> dict[str, dict[str, bool]]:
    """Fault -> check -> whether it finds the fault, for sound code and for each of the faults."""
    answer = {}
    for fault in [NONE, *FAULTS] if faults is None else faults:
        torch.manual_seed(0)
        attention = MaskedAttention(D, H, fault).double()
        answer[fault] = {check: found(check, attention) for check in CHECKS}
    return answer


def _real() -> Tensor:
    return torch.arange(L) < LENGTHS[:, None]  # (B, L)


def _largest(x: Tensor) -> float:
    """The largest size, NaN if there is one."""
    return x.detach().abs().max().item()
