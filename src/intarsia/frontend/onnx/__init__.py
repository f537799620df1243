"""ONNX models as Relay modules."""

from intarsia.frontend.onnx.importer import load

__all__ = ["load"]
