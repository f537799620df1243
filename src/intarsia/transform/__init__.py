"""Relay to Relay: one pass, one file, one verb."""

from intarsia.transform.manager import Pass, Trace, optimize, pipeline, timed

__all__ = ["Pass", "Trace", "optimize", "pipeline", "timed"]
