"""The page docs/onnx.md: which ONNX operators are supported, from the converters and the ONNX standard.

python -m intarsia.frontend.onnx.table > docs/onnx.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from intarsia.frontend.onnx import importer  # noqa: F401 - converters enter themselves
from intarsia.frontend.onnx.check import Gaps
from intarsia.frontend.onnx.functions import fixed_body, schema_of
from intarsia.frontend.onnx.node import MAIN_DOMAIN, converted, converter
from intarsia.frontend.onnx.read import NEWEST_OPSET
from intarsia.op.entry import names as operator_names

# What a converter refuses: one for each that has a `limit`.
NOTES = {
    "Cast": "to number types and bool only",
    "Constant": "no strings, no sparse tensors",
    "DequantizeLinear": "not in blocks",
    "Dropout": "as in inference; no training mode",
    "EyeLike": "number types and bool only",
    "FusedMatMul": "without transBatchA, transBatchB",
    "GRU": "the activations of the standard that Relay has",
    "GroupNormalization": "num_groups of at least 1",
    "LSTM": "the activations of the standard that Relay has",
    "MaxPool": "without the indices",
    "QuantizeLinear": "not in blocks",
    "RNN": "the activations of the standard that Relay has",
    "Scan": "not as in operator set 8",
    "SkipLayerNormalization": "without mean and inv_std_var",
}
_STANDARD_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")
_HEAD = """# ONNX operators

This page is generated; `python -m intarsia.frontend.onnx.table > docs/onnx.md` writes it anew.

Operator sets up to {newest} are read, by the rules of the set that the model states (the standard's
operators below are those of onnx {onnx}). An operator is converted, or replaced by the body that the
standard gives it, or by a function that the model brings along. A model with operators that are missing is
refused as a whole: one error, ONNX-020, lists them all with their nodes.

Element types: bool, int8 … int64, uint8 … uint64, float16, bfloat16, float32, float64. Dimensions may be
symbols or unknown; ranks are known. Where an input of an operator decides a rank, or how the work is laid
out (axes, scales, the size of a kernel), it must be constant after folding (else ONNX-023); sizes may be
computed at run time.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An operator and the operator sets that have it; last: 0 while it is not withdrawn."""

    domain: str
    op: str
    first: int
    last: int
    support: str  # in words; '' for none


def entries() -> list[Entry]:
    """Every operator of the standard and every other one that is converted, by domain and name."""
    from onnx import defs

    history: dict[tuple[str, str], list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain in _STANDARD_DOMAINS:
            history.setdefault((schema.domain or MAIN_DOMAIN, schema.name), []).append(schema)
    known = frozenset(operator_names())
    found = [_entry(domain, op, schemas, known) for (domain, op), schemas in history.items()]
    found += [Entry(d, op, 0, 0, "converted") for d, op in converted() if (d, op) not in history]
    return sorted(found, key=lambda e: (e.domain != MAIN_DOMAIN, e.domain, e.op))


def _entry(domain: str, op: str, schemas: list[Any], known: frozenset[str]) -> Entry:
    newest = max(schemas, key=lambda s: s.since_version)
    last = newest.since_version - 1 if newest.deprecated else 0
    own = converter(domain, op)
    if own is not None and known.issuperset(own.needs):
        support = "converted"
    else:
        support = _by_body(domain, op, last or NEWEST_OPSET, known)
    return Entry(domain, op, min(s.since_version for s in schemas), last, support)


def _by_body(domain: str, op: str, version: int, known: frozenset[str]) -> str:
    """How the standard's body supports an operator; what it needs may show at the node only."""
    schema = schema_of(domain, op, version)
    if schema is None or not Gaps("", known, set()).has_body(domain, op, version):
        return ""
    return (
        "by its body" if fixed_body(schema, version) is not None else "by its body, which depends on the node"
    )


def page() -> str:
    """The text of docs/onnx.md."""
    import onnx

    found = entries()
    lines = [_HEAD.format(newest=NEWEST_OPSET, onnx=onnx.__version__)]
    for domain in dict.fromkeys(e.domain for e in found):
        inside = [e for e in found if e.domain == domain]
        lines += _section(domain, inside)
    return "\n".join(lines) + "\n"


def _section(domain: str, inside: list[Entry]) -> Iterator[str]:
    there = [e for e in inside if e.support]
    missing = [e.op for e in inside if not e.support]
    yield f"## {domain}\n"
    if there:
        yield "| operator | operator sets | how | notes |"
        yield "|---|---|---|---|"
        for e in there:
            sets = "" if not e.first else f"{e.first} – {e.last}" if e.last else f"{e.first} –"
            yield f"| {e.op} | {sets} | {e.support} | {NOTES.get(e.op, '')} |"
        yield ""
    if missing:
        yield f"Not supported: {', '.join(missing)}.\n"


if __name__ == "__main__":
    print(page(), end="")
