"""Pictures of printed text, drawn with NumPy alone: the same on every machine, and readable.

Noise would not do as an input of a text detector: its probabilities are then all but zero, and a relative
difference between two systems says nothing.
"""

from __future__ import annotations

import numpy as np

# 5 x 7 letters, a row a number, the highest of five bits leftmost
_LETTERS = {
    "A": (14, 17, 17, 31, 17, 17, 17), "C": (14, 17, 16, 16, 16, 17, 14), "D": (30, 17, 17, 17, 17, 17, 30),
    "E": (31, 16, 16, 30, 16, 16, 31), "F": (31, 16, 16, 30, 16, 16, 16),
    "G": (14, 17, 16, 23, 17, 17, 15), "H": (17, 17, 17, 31, 17, 17, 17),
    "I": (14, 4, 4, 4, 4, 4, 14), "L": (16, 16, 16, 16, 16, 16, 31), "N": (17, 25, 21, 19, 17, 17, 17),
    "O": (14, 17, 17, 17, 17, 17, 14), "R": (30, 17, 17, 30, 20, 18, 17), "S": (15, 16, 16, 14, 1, 1, 30),
    "T": (31, 4, 4, 4, 4, 4, 4), "U": (17, 17, 17, 17, 17, 17, 14), "W": (17, 17, 17, 21, 21, 27, 17),
    " ": (0, 0, 0, 0, 0, 0, 0),
}  # fmt: skip
_WORDS = "INTARSIA THE ART OF INLAID WOODS WHOSE COLOURS AND GRAINS TURN INTO A SCENE"


def line(height: int, width: int, start: int = 0) -> np.ndarray:
    """[height, width] float32, 0 (ink) … 1 (paper): a line of words as wide as the picture.

    start: where in the text it begins
    """
    scale = max(1, height * 2 // 3 // 7)
    letters = np.zeros((7, 0), np.float32)
    text = _WORDS[start % len(_WORDS) :] + " " + _WORDS
    for letter in (text * (width // len(text) + 1))[: width // (6 * scale) + 1]:
        rows = np.array(
            [[row >> (4 - k) & 1 for k in range(5)] + [0] for row in _LETTERS[letter]], np.float32
        )
        letters = np.concatenate([letters, rows], 1)
    ink = np.kron(letters, np.ones((scale, scale), np.float32))[:, : max(0, width - 4 * scale)]
    picture = np.ones((height, width), np.float32)
    top, left = (height - ink.shape[0]) // 2, 2 * scale
    picture[top : top + ink.shape[0], left : left + ink.shape[1]] -= 0.9 * ink[:, : width - left]
    return picture


def page(height: int, width: int) -> np.ndarray:
    """[height, width] float32: lines of text of growing size under each other."""
    picture = np.ones((height, width), np.float32)
    top, size = 8, 24
    while top + size <= height:
        picture[top : top + size] = line(size, width, start=top)
        top, size = top + size + 8, min(48, size + 6)
    return picture


def as_input(picture: np.ndarray) -> np.ndarray:
    """[1, 3, height, width] float32 in -1 … 1, as PP-OCR takes pictures."""
    return np.repeat(((picture - 0.5) / 0.5)[None, None], 3, axis=1).astype(np.float32)
