"""A typed module becomes a program: every function's lets in order, kernels launched, sizes computed, memory
planned.

Sizes are `Dim`s over the function's symbols. One that uses only symbols of the parameters is computed once,
at entry; others right where they are first needed. Integer tensors whose contents inference knows are not
computed at all: where they are needed as tensors, a kernel stores them; everywhere else their contents have
become sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from intarsia.dim import Bounds, Dim, Symbol, as_dim, product
from intarsia.infer import Typing, infer
from intarsia.infer.entry import Demand, entry_plan
from intarsia.infer.typing import tensor_leaves
from intarsia.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Let,
    OpRef,
    TensorType,
    Tuple,
    TupleGet,
    TupleType,
    Type,
    post_order,
)  # fmt: skip
from intarsia.kernel.strategy import Pack
from intarsia.kernel.target import ITEMSIZE, Target
from intarsia.op.entry import Item, Measured, Site
from intarsia.runtime.tensor import aligned
from intarsia.support.errors import UnsupportedError
from intarsia.vm import isa, memory
from intarsia.vm.isa import Instr, Message, Program, Spec
from intarsia.vm.lowering import Kernels, Known, Literal, Operand, Packed, Region, Register
from intarsia.vm.memory import Label


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A tuple; it exists at compile time only. A missing optional argument is the empty one."""

    fields: tuple[Value, ...]


Value = Union[Operand, Fields]
Then = Callable[[Value], None]


def compile_module(module: IRModule, target: Target, typing: Typing | None = None) -> Program:
    """The program of a module in A-normal form. Raises UnsupportedError VM-… for what cannot run."""
    typing = typing or infer(module)
    order = _reachable_functions(module)
    tables = _Tables(Kernels(target), {name: i for i, name in enumerate(order)})
    functions = [_FunctionCompiler(module, name, typing, tables).run() for name in order]
    return Program(
        tuple(functions), tuple(tables.kernels.refs), tuple(tables.constants), tuple(tables.messages)
    )


def _reachable_functions(module: IRModule) -> list[str]:
    order = ["main"]
    for name in order:
        for node in post_order(module.functions[name].body):
            if isinstance(node, GlobalVar) and node.name not in order:
                order.append(node.name)
    return order


class _Tables:
    """What functions share: kernels, constants, messages."""

    def __init__(self, kernels: Kernels, functions: dict[str, int]):
        self.kernels, self.functions = kernels, functions
        self.constants: list[np.ndarray] = []
        self.messages: list[Message] = []
        self._constant: dict[object, int] = {}
        self._message: dict[Message, int] = {}
        self._keep: list[object] = []

    def constant(self, array: np.ndarray, pack: Pack | None = None) -> int:
        """The number of a constant, each once; pack: how the kernel wants it rearranged."""
        key = (id(array), None if pack is None else pack.key)
        if key not in self._constant:
            self._keep.append(array)
            stored = array if pack is None else pack.apply(array)
            if stored.ndim > isa.MAX_RANK:  # the machine needs the place only; kernels know the dimensions
                stored = stored.reshape(-1, *stored.shape[1 - isa.MAX_RANK :])
            small = (stored.dtype.str, stored.shape, stored.tobytes()) if stored.size <= 1024 else None
            if small is not None and small in self._constant:
                self._constant[key] = self._constant[small]
            else:
                self._constant[key] = len(self.constants)
                if small is not None:
                    self._constant[small] = len(self.constants)
                self.constants.append(aligned(stored))
        return self._constant[key]

    def message(self, m: Message) -> int:
        if m not in self._message:
            self._message[m] = len(self.messages)
            self.messages.append(m)
        return self._message[m]


@dataclass(slots=True)
class _Scope:
    """What is available on the current path: sizes in integer registers, symbols, tensors made on demand."""

    ints: dict[Dim, int] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    tensors: dict[object, int] = field(default_factory=dict)

    def copy(self) -> _Scope:
        return _Scope(dict(self.ints), dict(self.symbols), dict(self.tensors))


class _FunctionCompiler:
    def __init__(self, module: IRModule, name: str, typing: Typing, tables: _Tables):
        self.module, self.name, self.typing, self.tables = module, name, typing, tables
        self.function: Function = module.functions[name]
        self.entry: list[Instr] = []
        self.body: list[Instr] = []
        self.entry_ints: dict[Dim, int] = {}
        self.entry_symbols: dict[str, int] = {}
        self.scope = _Scope()
        self.sizes: dict[int, Dim] = {}
        self.values: dict[int, Value] = {}
        self.ints = self.objects = self.labels = 0
        self.depth = 0  # of branches around the current place
        self.todo: list[Callable[[], None]] = []
        self.bounds = Bounds(
            module.bounds.known if name == "main" else None
        )  # grows by symbols that are read

    # ---- the function --------------------------------------------------------------------------------------
    def run(self) -> isa.Function:
        f = self.function
        leaves: list[TensorType] = []
        for p in f.params:
            t = self.typing.type(p)
            mine = self._leaves(t, p)
            leaves += mine
            self.values[id(p)] = self._assemble(t, [Register(self._object(), leaf) for leaf in mine])
        self._bind_parameters(leaves)
        self._emit(f.body, self._return, tail=True)
        while self.todo:
            self.todo.pop()()
        return self._finish(leaves)

    def _finish(self, params: Sequence[TensorType]) -> isa.Function:
        plan = memory.plan(self.body, self.sizes, self.bounds)
        offsets = {register: self._entry_int(offset) for register, offset in plan.offsets.items()}
        if plan.offsets:  # its size may be 0: slots of empty tensors
            self.entry.append(isa.Frame(self._entry_int(plan.size)))
        code = memory.settle(self.entry + self.body, offsets)
        code = memory.insert_frees(code, len(params))
        results = self._leaves(self.typing.type(self.function.body), self.function)
        return isa.Function(
            self.name,
            tuple(map(_spec, params)),
            tuple(map(_spec, results)),
            self.ints,
            self.objects,
            memory.resolve(code),
        )

    # ---- entry ---------------------------------------------------------------------------------------------
    def _bind_parameters(self, leaves: Sequence[TensorType]) -> None:
        """Symbols from the parameters' dimensions, and checks that the dimensions agree."""
        names = self._parameter_names(leaves)
        for step in entry_plan(self.typing.type(p) for p in self.function.params):
            size = self._entry_size(step.leaf, step.axis)
            if isinstance(step, Demand):
                d = step.dim
                what = f"dimension {step.axis} of {names[step.leaf]} is {{a}}, but must be {d}"
                what += "" if d.is_const else " = {b}"
                self._check(
                    self.entry, size, "==", self._entry_int(d), what, "CALL-005", "input", self._why(d)
                )
                continue
            if step.offset != 0:
                size = self._arith(self.entry, "sub", size, self._entry_int(step.offset))
            if step.factor != 1:
                size = self._arith(self.entry, "floordiv", size, self._entry_int(as_dim(step.factor)))
            if step.offset != 0:
                what = (
                    f"dimension {step.axis} of {names[step.leaf]} is too small: {step.symbol} would be {{a}}"
                )
                self._check(self.entry, size, ">=", self._entry_int(as_dim(0)), what, "CALL-005", "input", "")
            self.entry_symbols[step.symbol] = self.entry_ints[Symbol(step.symbol)] = size
        for k, leaf in enumerate(leaves):
            for axis, d in enumerate(leaf.shape):
                if not d.symbols() <= self.entry_symbols.keys():
                    raise UnsupportedError(
                        "VM-002",
                        f"@{self.name}: the symbols of {d} (dimension {axis} of {names[k]}) "
                        "cannot be found from the inputs",
                        remedy="give some input a dimension that is one of these symbols alone",
                    )
        for symbol, (low, high) in sorted(self.module.bounds.known.items()) if self.name == "main" else ():
            register = self.entry_symbols.get(symbol)
            if register is None:
                continue
            if low > 0:
                what = f"{symbol} ({self._origin(symbol)}) is {{a}}, but must be at least {{b}}"
                self._check(
                    self.entry,
                    register,
                    ">=",
                    self._entry_int(as_dim(int(low))),
                    what,
                    "CALL-006",
                    "input",
                    "",
                )
            if high != float("inf"):
                what = f"{symbol} ({self._origin(symbol)}) is {{a}}, but must be at most {{b}}"
                self._check(
                    self.entry,
                    register,
                    "<=",
                    self._entry_int(as_dim(int(high))),
                    what,
                    "CALL-006",
                    "input",
                    "",
                )

    def _parameter_names(self, leaves: Sequence[TensorType]) -> list[str]:
        given = self.module.input_names if self.name == "main" else ()
        names: list[str] = []
        for i, p in enumerate(self.function.params):
            name = given[i] if i < len(given) else p.name
            count = len(tensor_leaves(self.typing.type(p)))
            names += [f"input '{name}'" if count == 1 else f"input '{name}' part {j}" for j in range(count)]
        return names

    def _why(self, d: Dim) -> str:
        return "; ".join(f"{s} is {self._origin(s)}" for s in sorted(d.symbols()))

    def _origin(self, symbol: str) -> str:
        """Where a symbol comes from; parameters of main are called as the user's model calls its inputs."""
        text = self.typing.origin(symbol, self.name)
        if self.name == "main":
            for p, name in zip(self.function.params, self.module.input_names):
                text = text.replace(f"parameter %{p.name} of @main", f"input '{name}'")
        return text

    def _entry_size(self, leaf: int, axis: int) -> int:
        """One dimension of a parameter, read once."""
        key = Symbol(f"#{leaf}.{axis}")  # no symbol of a program has such a name
        if key not in self.entry_ints:
            register = self.entry_ints[key] = self._int()
            self.entry.append(isa.DimOf(register, leaf, axis))
        return self.entry_ints[key]

    # ---- expressions ---------------------------------------------------------------------------------------
    def _emit(self, e: Expr, then: Then, *, tail: bool = False) -> None:
        """Schedule the evaluation of e; `then` gets its value. Deep programs cost no Python stack."""
        self.todo.append(lambda: self._step(e, then, tail))

    def _step(self, e: Expr, then: Then, tail: bool) -> None:
        match e:
            case Let(var=var, value=value, body=body):

                def bind(v: Value) -> None:
                    self.values[id(var)] = v
                    self._emit(body, then, tail=tail)

                self._emit(value, bind)
            case If():
                self._if(e, then, tail)
            case Call(op=GlobalVar(name=name)) if (
                tail and name == self.name and self.typing.maybe_type(e) is not None
            ):
                self.body.append(isa.TailCall(tuple(self._flat_registers(e.args))))
            case Call():
                then(self._call(e))
            case _:
                then(self._atom(e))

    def _return(self, value: Value) -> None:
        for c in self.typing.checks_at(self.function):
            self._site_check(c)
        self.body.append(isa.Return(tuple(self._tensor(v) for v in _flatten(value))))

    def _if(self, e: If, then: Then, tail: bool) -> None:
        condition = self._atom(e.cond)
        if isinstance(condition, Literal):
            self._emit(e.then if bool(condition.array) else e.orelse, then, tail=tail)
            return
        orelse, join = self._label(), self._label()
        self.body.append(isa.Branch(self._tensor(condition), orelse))
        before = self.scope
        self.scope = before.copy()
        self.depth += 1

        def second_arm() -> None:
            self.body.append(Label(orelse))
            self.scope = before.copy()

        if tail:

            def leave() -> None:
                self.depth -= 1

            self.todo.append(leave)
            self._emit(e.orelse, then, tail=True)
            self.todo.append(second_arm)
            self._emit(e.then, then, tail=True)
            return
        leaves = self._leaves(self.typing.type(e), e)
        registers = [Register(self._object(), leaf) for leaf in leaves]

        def deliver(value: Value) -> None:
            for target, v in zip(registers, _flatten(value), strict=True):
                self.body.append(isa.Move(target.index, self._tensor(v)))

        def first_done(value: Value) -> None:
            deliver(value)
            self.body.append(isa.Jump(join))

        def second_done(value: Value) -> None:
            deliver(value)
            self.body.append(Label(join))
            self.scope = before
            self.depth -= 1
            self._produced(e, registers)
            then(self._assemble(self.typing.type(e), registers))

        self._emit(e.orelse, second_done)
        self.todo.append(second_arm)
        self._emit(e.then, first_done)

    def _atom(self, e: Expr) -> Value:
        known = self.values.get(id(e))
        if known is not None:
            return known
        match e:
            case Constant(value=array):
                return Literal(array, self._tensor_type(e))
            case Tuple(fields=fields):
                return Fields(tuple(self._atom(f) for f in fields))
            case TupleGet(tuple=inner, index=index):
                value = self._atom(inner)
                assert isinstance(value, Fields)
                return value.fields[index]
            case Call():
                return self._call(e)
        raise UnsupportedError(
            "VM-001",
            f"@{self.name}: the virtual machine does not run {type(e).__name__} yet",
            where=str(e.span),
        )

    def _call(self, e: Call) -> Value:
        match e.op:
            case GlobalVar(name=name):
                return self._call_function(e, name)
            case OpRef():
                return self._call_region(e, [e], {})
            case Function() as f if f.primitive:
                calls = [n for n in post_order(f.body) if isinstance(n, Call)]
                return self._call_region(e, calls, dict(zip(map(id, f.params), e.args, strict=True)))
        raise UnsupportedError(
            "VM-001",
            f"@{self.name}: the virtual machine does not call {type(e.op).__name__} yet",
            where=str(e.span),
        )

    def _call_function(self, e: Call, name: str) -> Value:
        args = self._flat_registers(e.args)
        t = self.typing.type(e)
        results = [Register(self._object(), leaf) for leaf in self._leaves(t, e)]
        self.body.append(isa.Call(tuple(r.index for r in results), self.tables.functions[name], tuple(args)))
        self._produced(e, results)
        return self._assemble(t, results)

    def _flat_registers(self, args: Sequence[Expr]) -> list[int]:
        return [self._tensor(v) for a in args for v in _flatten(self._atom(a))]

    def _call_region(self, e: Call, calls: list[Call], params: dict[int, Expr]) -> Value:
        """A bare operator call or a primitive function's body."""
        sites = [self.typing.sites[id(c)] for c in calls]
        self.bounds = sites[0].bounds
        outer: dict[int, Operand | None] = {}
        inner = {id(c) for c in calls}
        for c, site in zip(calls, sites):
            for a in c.args:
                if id(a) not in inner and id(a) not in outer:
                    value = self._atom(params.get(id(a), a))
                    if isinstance(value, Fields):
                        assert not value.fields, "operators take tensors"
                        outer[id(a)] = None
                    else:
                        outer[id(a)] = value
            self._read_items(c, site, outer)
        for c in calls:
            for check in self.typing.checks_at(c):
                self._site_check(check)
        result = self.typing.type(e)
        known = self.typing.value(e)
        if known is not None and isinstance(result, TensorType):
            return self._known(known, result)
        live = [(c, s) for c, s in zip(calls, sites) if self.typing.value(c) is None or c is calls[-1]]
        if len(live) == 1 and live[0][1].op.view and isinstance(result, TensorType):
            return self._view(outer[id(live[0][0].args[0])], result)
        return self._launch(e, calls, outer)

    def _read_items(self, c: Call, site: Site, outer: dict[int, Operand | None]) -> None:
        for symbol, source in site.bindings.items():
            if isinstance(source, Item) and symbol not in self.scope.symbols:
                operand = outer.get(id(c.args[source.arg]))
                assert operand is not None, "an operator that reads a tensor's contents stands alone"
                register = self._int()
                self.body.append(isa.Item(register, self._tensor(operand), source.index))
                self._local_symbol(symbol, register)

    def _known(self, contents: np.ndarray, t: TensorType) -> Value:
        dims = [as_dim(d) for d in contents.flat]
        if all(d.is_const for d in dims):
            return Literal(np.array([d.value for d in dims], t.dtype).reshape(contents.shape), t)
        return Known(contents, t)

    def _view(self, operand: Operand | None, t: TensorType) -> Value:
        if isinstance(operand, Literal) and all(d.is_const for d in t.shape):
            return Literal(operand.array.reshape([d.value for d in t.shape]), t)
        assert operand is not None
        dst = self._object()
        self.body.append(isa.View(dst, self._tensor(operand), self._ints(t.shape)))
        return Register(dst, t)

    def _launch(self, e: Call, calls: list[Call], outer: dict[int, Operand | None]) -> Value:
        live: list[Call] = []
        for c in calls:
            if c is not calls[-1] and self.typing.value(c) is not None:
                t = self._tensor_type(c)
                value = self._known(self.typing.value(c), t)  # type: ignore[arg-type]
                assert not isinstance(value, Fields)
                outer[id(c)] = value
            else:
                live.append(c)
        sites = [self.typing.sites[id(c)] for c in live]
        for c, site in zip(live, sites):
            if site.op.compute is None:
                raise UnsupportedError("VM-003", f"{site.op.name} has no kernel", where=str(c.span))
        request = self.tables.kernels.request(Region(live, sites, outer, _name(sites)))
        inputs = tuple(
            self._tensor(i) if not isinstance(i, Packed) else self._packed(i) for i in request.inputs
        )
        t = self.typing.type(e)
        results = [Register(self._allocate(leaf.shape, leaf.dtype), leaf) for leaf in self._leaves(t, e)]
        workspaces = tuple(self._allocate(_ranked(dims), dtype) for dims, dtype in request.workspaces)
        symbols = tuple(map(self._int_of, request.symbols))
        self.body.append(
            isa.Launch(request.kernel, inputs, tuple(r.index for r in results), workspaces, symbols)
        )
        return self._assemble(t, results)

    def _packed(self, p: Packed) -> int:
        return self._constant_register(self.tables.constant(p.array, p.pack))

    def _constant_register(self, number: int) -> int:
        key = ("constant", number)
        if key not in self.scope.tensors:
            self.scope.tensors[key] = dst = self._object()
            self.body.append(isa.Const(dst, number))
        return self.scope.tensors[key]

    def _tensor(self, value: Value) -> int:
        """The object register that holds the value, which is made now if need be."""
        match value:
            case Register(index=index):
                return index
            case Literal(array=array):
                return self._constant_register(self.tables.constant(array))
            case Known(contents=contents, type=t):
                key = (tuple(contents.flat), contents.shape, t.dtype)
                if key not in self.scope.tensors:
                    request = self.tables.kernels.known(contents, t, self.bounds)
                    dst = self._allocate(t.shape, t.dtype)
                    symbols = tuple(map(self._int_of, request.symbols))
                    self.body.append(isa.Launch(request.kernel, (), (dst,), (), symbols))
                    self.scope.tensors[key] = dst
                return self.scope.tensors[key]
        raise UnsupportedError("VM-001", f"@{self.name}: a tuple stands where a tensor must")

    def _produced(self, e: Expr, results: Sequence[Register]) -> None:
        """Symbols that are measured on results, and checks that follow."""
        for symbol, source in self.typing.bindings(e).items():
            if isinstance(source, Measured) and symbol not in self.scope.symbols:
                register = self._int()
                self.body.append(isa.DimOf(register, results[source.output].index, source.axis))
                self._local_symbol(symbol, register)
        for check in self.typing.checks_at(e):
            self._site_check(check)

    # ---- checks --------------------------------------------------------------------------------------------
    def _site_check(self, c) -> None:
        symbols = c.left.symbols() | c.right.symbols()
        at_entry = self.depth == 0 and symbols <= self.entry_symbols.keys()
        a, b = self._int_of(c.left), self._int_of(c.right)
        text = f"{c.what}: {_side(c.left, 'a')} {c.relation} {_side(c.right, 'b')} does not hold"
        why = self._why(c.left + c.right)
        self._check(
            self.entry if at_entry else self.body,
            a,
            c.relation,
            b,
            text,
            "RUN-001",
            "run",
            why,
            where=str(c.span),
        )

    def _check(
        self,
        code: list[Instr],
        a: int,
        relation: str,
        b: int,
        text: str,
        number: str,
        kind: str,
        why: str,
        where: str = "",
    ) -> None:
        message = Message(kind, number, text + (f" ({why})" if why else ""), where)
        code.append(isa.Check(a, relation, b, self.tables.message(message)))

    # ---- integers ------------------------------------------------------------------------------------------
    def _ints(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(map(self._int_of, dims))

    def _int_of(self, d: Dim) -> int:
        """The integer register that holds d."""
        if d.symbols() <= self.entry_symbols.keys():
            return self._entry_int(d)
        return self._compute(d, self.body, self.scope.ints, self._int_of)

    def _entry_int(self, d: Dim) -> int:
        return self._compute(d, self.entry, self.entry_ints, self._entry_int)

    def _compute(self, d: Dim, code: list[Instr], memo: dict[Dim, int], sub: Callable[[Dim], int]) -> int:
        if d in memo:
            return memo[d]
        if d.is_const:
            register = self._int()
            code.append(isa.Imm(register, d.value))
        elif len(d.terms) > 1:
            monomials = [Dim({m: c}) for m, c in d.terms.items()]
            register = sub(monomials[0])
            for k, m in enumerate(monomials[1:], 2):
                partial = Dim(dict(list(d.terms.items())[:k]))
                if partial in memo:
                    register = memo[partial]
                else:
                    register = self._arith(code, "add", register, sub(m))
                    memo[partial] = register
        else:
            register = self._monomial(d, code, sub)
        memo[d] = register
        return register

    def _monomial(self, d: Dim, code: list[Instr], sub: Callable[[Dim], int]) -> int:
        ((monomial, c),) = d.terms.items()
        if c != 1:
            return self._arith(code, "mul", sub(Dim({monomial: 1})), sub(as_dim(c)))
        atom, power = monomial[0]
        if len(monomial) > 1 or power > 1:
            rest = ((atom, power - 1), *monomial[1:]) if power > 1 else monomial[1:]
            return self._arith(code, "mul", sub(Dim({((atom, 1),): 1})), sub(Dim({rest: 1})))
        if atom.kind == "sym":
            raise UnsupportedError(
                "VM-004",
                f"@{self.name}: symbol {atom.name} ({self._origin(atom.name)}) has no value here",
            )
        register = sub(atom.args[0])
        for a in atom.args[1:]:
            register = self._arith(code, atom.kind, register, sub(a))
        return register

    def _arith(self, code: list[Instr], op: str, a: int, b: int) -> int:
        register = self._int()
        code.append(isa.Arith(register, op, a, b))
        return register

    def _local_symbol(self, name: str, register: int) -> None:
        self.scope.symbols[name] = register
        self.scope.ints[Symbol(name)] = register

    # ---- registers -----------------------------------------------------------------------------------------
    def _allocate(self, dims: Sequence[Dim], dtype: str) -> int:
        dst = self._object()
        self.body.append(isa.Heap(dst, dtype, self._ints(dims)))
        size = product(dims) * ITEMSIZE[dtype]
        if size.symbols() <= self.entry_symbols.keys():
            self.sizes[dst] = size
        return dst

    def _int(self) -> int:
        self.ints += 1
        return self.ints - 1

    def _object(self) -> int:
        self.objects += 1
        return self.objects - 1

    def _label(self) -> int:
        self.labels += 1
        return self.labels - 1

    # ---- types ---------------------------------------------------------------------------------------------
    def _tensor_type(self, e: Expr) -> TensorType:
        t = self.typing.type(e)
        assert isinstance(t, TensorType)
        return t

    def _leaves(self, t: Type, e: Expr) -> list[TensorType]:
        """The tensors of a type of tensors and tuples, none of too high a rank."""
        todo, leaves = [t], []
        while todo:
            match todo.pop():
                case TensorType() as leaf:
                    leaves.append(leaf)
                case TupleType(fields=fields):
                    todo.extend(reversed(fields))
                case other:
                    raise UnsupportedError(
                        "VM-001",
                        f"@{self.name}: the virtual machine has no values of type {other} yet",
                        where=str(e.span),
                    )
        for leaf in leaves:
            if leaf.rank > isa.MAX_RANK:
                raise UnsupportedError(
                    "VM-005", f"rank {leaf.rank} is above the limit of {isa.MAX_RANK}", where=str(e.span)
                )
        return leaves

    def _assemble(self, t: Type, leaves: Sequence[Register]) -> Value:
        """The value of type t whose tensors are `leaves`, in order."""
        rest = list(reversed(leaves))

        def go(t: Type) -> Value:  # types are as deep as they are written
            return Fields(tuple(go(f) for f in t.fields)) if isinstance(t, TupleType) else rest.pop()

        return go(t)


def _flatten(value: Value) -> list[Operand]:
    flat: list[Operand] = []
    todo = [value]
    while todo:
        v = todo.pop()
        if isinstance(v, Fields):
            todo.extend(reversed(v.fields))
        else:
            flat.append(v)
    return flat


def _ranked(dims: Sequence[Dim]) -> Sequence[Dim]:
    """As many dimensions as a tensor of the machine has; kernels know all of them."""
    more = len(dims) - isa.MAX_RANK
    return (product(dims[: more + 1]), *dims[more + 1 :]) if more > 0 else dims


def _side(d: Dim, value: str) -> str:
    """One side of a check in words: the expression, if it is short, and the value it had."""
    text = str(d)
    return text if d.is_const else f"{{{value}}}" if len(text) > 60 else f"{text} = {{{value}}}"


def _spec(t: TensorType) -> Spec:
    return Spec(t.dtype, t.rank)


def _name(sites: Sequence[Site]) -> str:
    """A kernel's name for people: its operators, at most four."""
    names = [s.op.name.rpartition(".")[2] for s in sites]
    return "_".join(names if len(names) <= 4 else [*names[:3], "etc", names[-1]])
