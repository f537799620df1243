"""Evaluates compute definitions stage by stage with NumPy, checking every access.

Each index variable becomes an array along its own dimension, so an expression is evaluated for all places at
once. `mask` follows `Select`: where an arm is not chosen its loads may be out of bounds, and are not made.
"""

from __future__ import annotations

import math

import numpy as np

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.ir.types import TensorType, TupleType
from intarsia.kernel.compute import Opaque, Stage, placeholder
from intarsia.kernel.expr import Binary, Buffer, Cast, Const, Expr, Index, Load, Reduce, Select, Unary
from intarsia.op import entry

_erf = np.vectorize(math.erf, otypes=[np.float64])
_UNARY = {
    **{
        op: getattr(np, op)
        for op in [
            "abs",
            "sign",
            "exp",
            "log",
            "sqrt",
            "sin",
            "cos",
            "tanh",
            "floor",
            "ceil",
            "trunc",
            "isnan",
            "isinf",
        ]
    },
    "neg": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "erf": lambda x: _erf(x).astype(x.dtype),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "round": np.rint,
    "not": np.logical_not,
}
_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_REDUCE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}


def numpy_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


class StageOracle:
    """known: contents of input buffers by identity; symbols: values of dimension names."""

    def __init__(self, known: dict[Buffer, np.ndarray], symbols: dict[str, int] | None = None):
        self.known = {id(b): a for b, a in known.items()}
        self.symbols = dict(symbols or {})
        self.opaque: dict[int, tuple[np.ndarray, ...]] = {}

    def run(self, buffer: Buffer) -> np.ndarray:
        if id(buffer) in self.known:
            return self.known[id(buffer)]
        producer = buffer.producer
        assert producer is not None, f"{buffer.name} has neither contents nor a producer"
        if isinstance(producer, Opaque):
            result = self._run_opaque(producer, buffer)
        else:
            result = self._run_stage(buffer, producer)
        self.known[id(buffer)] = result
        return result

    def _run_opaque(self, producer: Opaque, buffer: Buffer) -> np.ndarray:
        if id(producer) not in self.opaque:
            from loop_oracle import run_opaque

            arrays = [self.run(b) for b in producer.inputs]
            self.opaque[id(producer)] = run_opaque(producer, arrays, self.symbols)
        return self.opaque[id(producer)][int(buffer.name.rpartition(".")[2])]

    def _run_stage(self, buffer: Buffer, stage: Stage) -> np.ndarray:
        shape = tuple(d.evaluate(self.symbols) for d in buffer.shape)
        body, reduced = stage.body, ()
        if isinstance(body, Reduce):
            reduced = body.axes
        names = [*stage.axes, *(a.var for a in reduced)]
        extents = [*shape, *(a.extent.evaluate(self.symbols) for a in reduced)]
        env: dict[str, np.ndarray | int] = dict(self.symbols)
        for k, (name, n) in enumerate(zip(names, extents)):
            env[name] = np.arange(n).reshape([-1 if i == k else 1 for i in range(len(names))])
        with np.errstate(all="ignore"):
            if isinstance(body, Reduce):
                values = np.broadcast_to(self._value(body.body, env, np.True_), extents)
                places = tuple(range(len(shape), len(extents)))
                if body.op in ("argmax", "argmin"):
                    result = getattr(np, body.op)(values, axis=places[0])
                elif values.size == 0:
                    from intarsia.kernel.expr import identity_of

                    result = np.full(shape, identity_of(body.op, body.dtype).value)
                else:
                    result = _REDUCE[body.op](values, axis=places, **self._dtype_of(body))
            else:
                result = np.broadcast_to(self._value(body, env, np.True_), shape)
        assert body.dtype == buffer.dtype, f"{buffer.name}: body is {body.dtype}, buffer {buffer.dtype}"
        return np.ascontiguousarray(result, dtype=numpy_dtype(buffer.dtype)).reshape(shape)

    @staticmethod
    def _dtype_of(body: Reduce) -> dict:
        return {"dtype": numpy_dtype(body.dtype)} if body.op in ("sum", "prod") else {}

    def _value(self, e: Expr, env: dict, mask: np.ndarray) -> np.ndarray:
        match e:
            case Const():
                return np.asarray(e.value, numpy_dtype(e.dtype))
            case Index():
                return evaluate_dim(e.dim, env)
            case Load():
                array = self.run(e.buffer)
                assert len(e.indices) == array.ndim, (
                    f"{e.buffer.name}: {len(e.indices)} of {array.ndim} indices"
                )
                places = [
                    self._value(i, env, mask) if isinstance(i, Expr) else evaluate_dim(i, env)
                    for i in e.indices
                ]
                legal = np.True_
                for place, n in zip(places, array.shape):
                    legal = legal & (place >= 0) & (place < n)
                assert np.all(legal | ~np.asarray(mask)), f"load of {e.buffer.name} out of bounds"
                if array.size == 0:
                    shape = np.broadcast_shapes(*(p.shape for p in places), np.shape(mask))
                    return np.zeros(shape, array.dtype)
                return array[tuple(np.clip(p, 0, n - 1) for p, n in zip(places, array.shape))]
            case Unary():
                x = self._value(e.x, env, mask)
                return np.asarray(_UNARY[e.op](x)).astype(numpy_dtype(e.dtype))
            case Binary("div", a, b):
                x, y = self._value(a, env, mask), self._value(b, env, mask)
                return x / y if x.dtype.kind not in "iu" else np.trunc(x / y).astype(x.dtype)
            case Binary("and", a, b):
                x = self._value(a, env, mask)
                return x & self._value(b, env, mask)
            case Binary():
                assert e.a.dtype == e.b.dtype, f"{e.op} of {e.a.dtype} and {e.b.dtype}"
                x, y = self._value(e.a, env, mask), self._value(e.b, env, mask)
                return np.asarray(_BINARY[e.op](x, y)).astype(numpy_dtype(e.dtype))
            case Select():
                assert e.then.dtype == e.orelse.dtype
                cond = self._value(e.cond, env, mask)
                then = self._value(e.then, env, mask & cond)
                return np.where(cond, then, self._value(e.orelse, env, mask & ~cond))
            case Cast():
                x = self._value(e.x, env, mask)
                if x.dtype.kind not in "iub" and "int" in e.dtype:
                    info = np.iinfo(e.dtype)
                    whole = np.nan_to_num(np.trunc(x.astype(np.float64)))
                    return np.clip(whole, info.min, info.max).astype(e.dtype)
                return x.astype(numpy_dtype(e.dtype))
        raise AssertionError(f"{type(e).__name__} inside a stage")


def evaluate_dim(d: Dim, env: dict) -> np.ndarray:
    """d for index arrays (Dim.evaluate is for single integers)."""
    total = np.asarray(0, np.int64)
    for monomial, c in d.terms.items():
        term = np.asarray(c, np.int64)
        for atom, power in monomial:
            if atom.kind == "sym":
                value = np.asarray(env[atom.name], np.int64)
            else:
                args = [evaluate_dim(a, env) for a in atom.args]
                op = {"floordiv": np.floor_divide, "mod": np.mod, "min": np.minimum, "max": np.maximum}[
                    atom.kind
                ]
                value = args[0]
                for a in args[1:]:
                    value = op(value, a)
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def run_operator(
    name, arrays, attrs=None, *, symbolic=(), known=(), constants=(), expect=None, rtol=2e-5, atol=1e-6
):
    """Type a call, check its shapes and facts, and compare compute definition, reference and `expect`.

    arrays:    the arguments, None for a missing one
    symbolic:  (argument, axis) pairs whose sizes the rule sees as symbols only
    known:     integer arguments whose contents the rule knows
    constants: arguments that are compile-time constants
    Returns the compute definition's results as a tuple.
    """
    op = entry.get(name)
    symbols: dict[str, int] = {}
    types = []
    for i, a in enumerate(arrays):
        if a is None:
            types.append(entry.Arg(TupleType(())))
            continue
        dims = []
        for k, n in enumerate(a.shape):
            if (i, k) in symbolic:
                symbols[f"d{i}_{k}"] = n
                dims.append(Symbol(f"d{i}_{k}"))
            else:
                dims.append(as_dim(n))
        value = None
        if i in known:
            value = np.array([as_dim(int(v)) for v in a.reshape(-1)] + [None], object)[:-1].reshape(a.shape)
        extra = {"constant": a} if i in constants else {}
        types.append(entry.Arg(TensorType(tuple(dims), a.dtype.name), value, **extra))
    site = entry.Site(op, types, attrs)
    result = op.rule(site)
    site.out = result.fields if isinstance(result, TupleType) else (result,)
    for symbol, source in site.bindings.items():
        if isinstance(source, entry.Item):
            symbols[symbol] = int(arrays[source.arg].reshape(-1)[source.index])
    relations = {"==": "__eq__", "<=": "__le__", "<": "__lt__", ">=": "__ge__", ">": "__gt__"}
    for c in site.checks:
        left, right = c.left.evaluate(symbols), c.right.evaluate(symbols)
        assert getattr(left, relations[c.relation])(right), f"{c.what}: {left} {c.relation} {right}"
    buffers = [None if a is None else placeholder(f"a{i}", t.type.shape, t.type.dtype)
               for i, (a, t) in enumerate(zip(arrays, types))]  # fmt: skip
    given = [None if i in known else b for i, b in enumerate(buffers)]
    assert op.compute is not None
    outputs = op.compute(site, given)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    oracle = StageOracle({b: a for b, a in zip(buffers, arrays) if b is not None}, symbols)
    reference = op.reference(*arrays, **site.attrs)
    reference = reference if isinstance(reference, tuple) else (reference,)
    expected = reference if expect is None else expect if isinstance(expect, tuple) else (expect,)
    results = []
    for t, out, ref, exp in zip(site.out, outputs, reference, expected, strict=True):
        shape = tuple(d.evaluate(symbols) for d in t.shape)
        assert tuple(d.evaluate(symbols) for d in out.shape) == shape
        assert out.dtype == t.dtype == ref.dtype.name, (out.dtype, t.dtype, ref.dtype)
        assert ref.shape == shape, f"rule says {shape}, reference {ref.shape}"
        got = oracle.run(out)
        np.testing.assert_allclose(_wide(ref), _wide(exp), rtol=rtol, atol=atol, err_msg="reference")
        np.testing.assert_allclose(_wide(got), _wide(exp), rtol=rtol, atol=atol, err_msg="compute definition")
        results.append(got)
    return tuple(results)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.kind not in "iub" else x


def onnx_reference(op_type, arrays, outputs=1, *, opset=22, **attrs):
    """What ONNX's own reference evaluator says of a single node; missing arguments are None."""
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = ["" if a is None else f"i{k}" for k, a in enumerate(arrays)]
    outs = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, outs, **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in zip(names, arrays) if a is not None],
        [helper.make_tensor_value_info(o, onnx.TensorProto.UNDEFINED, None) for o in outs],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {n: a for n, a in zip(names, arrays) if a is not None}
    result = ReferenceEvaluator(model).run(None, feeds)
    return tuple(np.asarray(r) for r in result) if outputs > 1 else np.asarray(result[0])
