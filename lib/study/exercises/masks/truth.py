"""Answers that are true or false, so that the comparison of numbers can judge them too."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class AsNumbers:
    """A function whose boolean results become 1 and 0. Other tensors are refused: a mask of numbers is another thing."""

    def __init__(self, answer: Callable[..., Any]):
        self.answer = answer
        self.__code__ = getattr(answer, "__code__", None)  # by which an empty answer is told from a wrong one

    def __call__(self, *args: Any) -> Any:
        value = self.answer(*args)
        if isinstance(value, bool):
            return torch.tensor(int(value))
        if not isinstance(value, Tensor):
            return value
        if value.dtype != torch.bool:
            raise TypeError(
                f"the answer is boolean, got {value.dtype}: numbers would be added to the scores, and 1 and 0 hide nothing"
            )
        return value.int()


def as_numbers(answer: Any) -> Any:
    """The answer with 1 and 0 for True and False; what is no function stays as it is."""
    return AsNumbers(answer) if callable(answer) else answer
