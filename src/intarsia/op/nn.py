"""Operators of neural networks that are not elementwise: importing this module registers them.

nn_conv.py: convolutions; nn_pool.py: pools; nn_norm.py: normalisations and softmax.
"""

from intarsia.op import nn_conv, nn_norm, nn_pool

__all__ = ["nn_conv", "nn_norm", "nn_pool"]
