"""The memory plan never lets two living tensors overlap, for any value of the symbols."""

from hypothesis import given, settings
from hypothesis import strategies as st
from programs import long_chain, matmul_chain

import intarsia
from intarsia.dim import Bounds, Symbol, as_dim
from intarsia.vm.isa import Free, Heap, Slot
from intarsia.vm.memory import Place, pack

n, m = Symbol("n"), Symbol("m")
UNITS = [as_dim(1), n, n * m, n - 3]


@st.composite
def places(draw):
    count = draw(st.integers(1, 25))
    found = []
    for register in range(count):
        first = draw(st.integers(0, 30))
        unit = draw(st.sampled_from(UNITS))
        found.append(
            Place(register, unit * draw(st.integers(0, 300)), first, first + draw(st.integers(0, 10)))
        )
    return found


@settings(max_examples=60, deadline=None)
@given(places(), st.integers(0, 70), st.integers(0, 9))
def test_living_tensors_never_overlap(found, n_value, m_value):
    plan = pack(found, Bounds())
    env = {"n": n_value, "m": m_value}
    spans = []
    for p in found:
        start, size = plan.offsets[p.register].evaluate(env), max(0, p.size.evaluate(env))
        assert start % 64 == 0 and start >= 0 and start + size <= plan.size.evaluate(env)
        spans.append((start, start + size, p))
    for i, (a, b, p) in enumerate(spans):
        for c, d, q in spans[:i]:
            if p.first <= q.last and q.first <= p.last:
                assert b <= c or d <= a or a == b or c == d


def test_a_chain_needs_the_memory_of_two_tensors():
    places = [Place(i, n * 400, i, i + 1) for i in range(50)]
    plan = pack(places, Bounds())
    assert plan.size.evaluate({"n": 100}) <= 2 * 100 * 400 + 4 * 64


def test_intermediate_tensors_live_in_the_frame_and_results_on_the_heap():
    exe = intarsia.compile(long_chain(9), threads=1, tier="interpreter", level=0)
    code = exe.program.functions[0].code
    assert sum(isinstance(i, Heap) for i in code) == 1
    assert sum(isinstance(i, Slot) for i in code) >= 8


def test_what_is_on_the_heap_is_freed_where_it_dies():
    from programs import arange_to_argument

    code = (
        intarsia.compile(arange_to_argument(), threads=1, tier="interpreter", level=0)
        .program.functions[0]
        .code
    )
    heap = [i.dst for i in code if isinstance(i, Heap)]
    freed = [i.src for i in code if isinstance(i, Free)]
    assert len(heap) == 2 and heap[0] in freed and heap[1] not in freed


def test_constants_are_stored_once():
    exe = intarsia.compile(matmul_chain(), threads=1, tier="interpreter")
    assert len(exe.program.constants) == 3
