"""Relay to Relay: one pass, one file, one verb."""

from intarsia.transform.manager import Pass, optimize, pipeline

__all__ = ["Pass", "optimize", "pipeline"]
