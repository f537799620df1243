"""Errors that people can act on.

Everything Intarsia raises on purpose derives from `Error`: a stable code, what was wrong, where in the user's
own model, and what to do about it. `docs/errors.md` lists the codes.
"""

from __future__ import annotations


class Error(Exception):
    """What was wrong, where, and the remedy.

    code    stable identifier `AREA-NNN`, e.g. `ONNX-003`; scripts may rely on it
    where   place in the user's model, e.g. "node 'conv1' (Conv)"; None where there is none
    remedy  what the user can do; None where there is nothing sensible to suggest
    """

    def __init__(self, code: str, message: str, *, where: str | None = None, remedy: str | None = None):
        self.code, self.message, self.where, self.remedy = code, message, where, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}"]
        if self.where:
            lines.append(f"  at  {self.where}")
        if self.remedy:
            lines.append(f"  try {self.remedy}")
        return "\n".join(lines)

    def __reduce__(self):
        return _rebuild, (type(self), self.code, self.message, self.where, self.remedy)


def _rebuild(cls, code, message, where, remedy):
    return cls(code, message, where=where, remedy=remedy)


class ModelError(Error):
    """The model cannot be read or is not well formed (ONNX-…, TEXT-…)."""


class TypeCheckError(Error):
    """The program does not type-check (TYPE-…)."""


class UnsupportedError(Error):
    """The model is fine, but something in it is missing here (OP-…, ONNX-…)."""


class InputError(Error):
    """What was passed to a compiled model does not fit it (CALL-…)."""


class ArtifactError(Error):
    """A saved artifact is damaged, foreign or of another version (ART-…)."""


class CodegenError(Error):
    """Machine code could not be made (CODE-…)."""
