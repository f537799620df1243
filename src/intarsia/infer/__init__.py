"""Types, shapes and known contents of every expression."""

from intarsia.infer.module import infer
from intarsia.infer.typing import Typing, tensor_leaves

__all__ = ["Typing", "infer", "tensor_leaves"]
