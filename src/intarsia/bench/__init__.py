"""Measurements beside other systems, honestly: own processes, interleaved rounds, equal outputs first."""

from intarsia.bench.run import Row, compare
from intarsia.bench.workload import SPINE, Workload, from_model, spine

__all__ = ["SPINE", "Row", "Workload", "compare", "from_model", "spine"]
