"""One head with a linear map behind it that answers more of two questions than training finds: its weights set by hand.

The 64 columns of the width are shared out: 24 for a token's own name, 24 for the names it asks for, 8 for its own value, and
8 for what attention brings.
"""

import math

import torch
from torch import Tensor

from lib.multihead import MultiHeadAttention
from lib.study.heads_tasks import NAMES, VALUES, WIDTH, LookUpNet

CODE = 24  # columns for a name
OWN, ASKED = slice(0, CODE), slice(CODE, 2 * CODE)
VALUE, FOUND = slice(2 * CODE, 2 * CODE + VALUES), slice(2 * CODE + VALUES, WIDTH)
SHARPNESS = 60.0  # score of a token that is asked for, above the others


def distinct_codes(steps: int = 800) -> Tensor:
    """Unit vectors for the names, pushed apart until any two are nearly orthogonal: (32, 24)."""
    codes = torch.randn(NAMES, CODE, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimizer = torch.optim.Adam([codes], 0.05)
    for _ in range(steps):
        unit = codes / codes.norm(dim=1, keepdim=True)
        crowding = (unit @ unit.T - torch.eye(NAMES)).pow(6).sum()
        optimizer.zero_grad()
        crowding.backward()
        optimizer.step()
    return (codes / codes.norm(dim=1, keepdim=True)).detach()


def one_head(share: float = 0.6) -> LookUpNet:
    """A net with one head that gives `share` of its weight to the first token asked for and the rest to the second.

    The first answer is the value that weighs more. The second is, of the two values, the one with the higher number.
    """
    net = LookUpNet(lambda: MultiHeadAttention(WIDTH, 1))
    codes, eye = distinct_codes(), torch.eye(VALUES)
    names, first, second, values = net.embeddings
    w_q, w_k, w_v = net.attentions[0].projections()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        names.weight[:, OWN] = codes
        first.weight[:, ASKED] = codes * (1 + math.log(share / (1 - share)) / SHARPNESS)
        second.weight[:, ASKED] = codes
        values.weight[:, VALUE] = eye
        w_q[:CODE, ASKED] = torch.eye(CODE) * SHARPNESS * math.sqrt(WIDTH)
        w_k[:CODE, OWN] = torch.eye(CODE)
        w_v[:VALUES, VALUE] = eye
        net.attentions[0].out_proj.weight[FOUND, :VALUES] = eye
        net.answers.weight[:VALUES, FOUND] = 40 * eye
        net.answers.weight[VALUES:, FOUND] = torch.diag(2.0 ** torch.arange(VALUES))
    return net.eval()
