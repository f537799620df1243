"""The verifier accepts what the compiler writes and refuses what could not run."""

import random
from dataclasses import replace

import pytest
from programs import CASES, counting_loop, matmul_chain, nested_branches

import intarsia
from intarsia.vm import container, isa
from intarsia.vm.verify import verify


def program(build) -> isa.Program:
    return intarsia.compile(build(), threads=1, tier="interpreter").program


@pytest.mark.parametrize("build", [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_compiled_programs_are_accepted(build):
    verify(program(build))


def change(p: isa.Program, at: int, *new: isa.Instr) -> isa.Program:
    f = p.functions[0]
    code = (*f.code[:at], *new, *f.code[at + 1 :])
    return replace(p, functions=(replace(f, code=code), *p.functions[1:]))


def position(p: isa.Program, kind: type) -> int:
    return next(i for i, instr in enumerate(p.functions[0].code) if isinstance(instr, kind))


def test_refused_programs_say_why():
    p = program(matmul_chain)
    launch = position(p, isa.Launch)
    was = p.functions[0].code[launch]
    assert isinstance(was, isa.Launch)
    last = len(p.functions[0].code) - 1
    for new, why in [
        (replace(was, kernel=99), "kernel 99 does not exist"),
        (replace(was, inputs=was.inputs[:-1]), "inputs instead of"),
        (replace(was, inputs=(77, *was.inputs[1:])), "object 77 does not exist"),
        (replace(was, outputs=(p.functions[0].objects - 1,)), "has no value"),
        (replace(was, symbols=()), "the kernel takes"),
        (isa.Imm(0, 5), "assigned twice"),
        (isa.Jump(0), "must go forward"),
    ]:
        with pytest.raises(intarsia.ArtifactError, match=why):
            verify(change(p, launch, new))
    with pytest.raises(intarsia.ArtifactError, match="runs off its end"):
        verify(change(p, last, isa.Free(0)))
    with pytest.raises(intarsia.ArtifactError, match="results"):
        verify(change(p, last, isa.Return(())))


def test_a_value_of_one_arm_is_not_a_value_after_it():
    p = program(nested_branches)
    code = p.functions[0].code
    branch = position(p, isa.Branch)
    made = next(i for i, x in enumerate(code) if i > branch and isinstance(x, isa.Slot | isa.Heap))
    move = next(i for i, x in enumerate(code) if isinstance(x, isa.Return))
    with pytest.raises(intarsia.ArtifactError, match="no value"):
        verify(change(p, move, isa.Return((code[made].dst,))))


@pytest.mark.parametrize("build", [matmul_chain, counting_loop, nested_branches])
def test_mutated_bytecode_is_refused_or_valid_but_never_crashes(build):
    p = program(build)
    rng = random.Random(1)
    encoded = [container.encode_code(f.code) for f in p.functions]
    for _ in range(300):
        k = rng.randrange(len(encoded))
        data = bytearray(encoded[k])
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            code = container.decode_code(bytes(data[: rng.choice([len(data), rng.randrange(len(data))])]))
            functions = tuple(replace(f, code=code) if i == k else f for i, f in enumerate(p.functions))
            verify(replace(p, functions=functions))
        except intarsia.ArtifactError:
            pass


def test_code_round_trips_through_bytes():
    for _, build, _ in CASES:
        for f in program(build).functions:
            assert container.decode_code(container.encode_code(f.code)) == f.code
