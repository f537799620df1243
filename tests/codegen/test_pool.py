"""The generated thread pool, run in this process: every index once, from any number of threads."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from intarsia.codegen.llvm import native
from intarsia.codegen.llvm.host import host_target
from intarsia.codegen.llvm.jit import Library
from intarsia.codegen.llvm.pool import pool_ir

# job: counters[i] += 1; slow: the same after some work; nested: a job of 8 in each of its indices
# drive: `repeats` jobs one after another, of changing size, each on counters of its own (row r % 4)
_JOBS = """
declare void @intarsia_parallel_for(ptr, ptr, ptr, i64)

define void @job(ptr %env, i64 %i) {
  %p = getelementptr i64, ptr %env, i64 %i
  %x = atomicrmw add ptr %p, i64 1 monotonic, align 8
  ret void
}

define void @slow(ptr %env, i64 %i) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %next = add i64 %k, 1
  call void asm sideeffect "", ""()
  %more = icmp slt i64 %next, 20000
  br i1 %more, label %loop, label %end
end:
  call void @job(ptr %env, i64 %i)
  ret void
}

define void @nested(ptr %env, i64 %i) {
  %ctx = load ptr, ptr %env, align 8
  %rows = getelementptr i64, ptr %env, i64 1
  %start = mul i64 %i, 8
  %row = getelementptr i64, ptr %rows, i64 %start
  call void @intarsia_parallel_for(ptr %ctx, ptr @job, ptr %row, i64 8)
  ret void
}

define void @drive(ptr %ctx, ptr %counters, i64 %stride, i64 %repeats) {
entry:
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %next, %loop ]
  %which = and i64 %r, 3
  %offset = mul i64 %which, %stride
  %row = getelementptr i64, ptr %counters, i64 %offset
  %less = mul i64 %which, 3
  %n = sub i64 %stride, %less
  call void @intarsia_parallel_for(ptr %ctx, ptr @job, ptr %row, i64 %n)
  %next = add i64 %r, 1
  %more = icmp slt i64 %next, %repeats
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
_SIGNATURES = {
    "intarsia_pool_create": (ctypes.c_void_p, [ctypes.c_int64]),
    "intarsia_pool_destroy": (None, [ctypes.c_void_p]),
    "intarsia_parallel_for": (None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]),
    "drive": (None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]),
}


class Machine:
    """The pool and the jobs as machine code of this process."""

    def __init__(self):
        target = host_target()
        objects = [native.emit(pool_ir(target.triple), target), native.emit(_JOBS, target)]
        self.library = Library(objects, [*_SIGNATURES, "job", "slow", "nested"])
        self.address = {name: self.library.address(name) for name in ("job", "slow", "nested")}
        for name, (result, args) in _SIGNATURES.items():
            setattr(self, name, ctypes.CFUNCTYPE(result, *args)(self.library.address(name)))


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


class Context:
    """A call's context: its first field is the pool."""

    def __init__(self, machine: Machine, threads: int):
        self.machine = machine
        self.pool = machine.intarsia_pool_create(threads)
        assert self.pool
        self.memory = (ctypes.c_void_p * 4)(self.pool)
        self.at = ctypes.addressof(self.memory)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_) -> None:
        self.machine.intarsia_pool_destroy(self.pool)

    def run(self, n: int, job: str = "job") -> np.ndarray:
        counters = np.zeros(max(n, 1), np.int64)
        self.machine.intarsia_parallel_for(self.at, self.machine.address[job], counters.ctypes.data, n)
        return counters


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1000])
def test_every_index_runs_once(machine, threads, n):
    with Context(machine, threads) as context:
        for _ in range(5):
            assert (context.run(n)[:n] == 1).all()


@pytest.mark.parametrize("threads", [0, -3])
def test_no_threads_means_the_callers_alone(machine, threads):
    with Context(machine, threads) as context:
        assert (context.run(5) == 1).all()


def test_negative_counts_do_nothing(machine):
    with Context(machine, 2) as context:
        assert not context.run(-4).any()


def test_null_context_and_null_pool_run_serially(machine):
    counters, nothing = np.zeros(9, np.int64), (ctypes.c_void_p * 2)()
    for context in (None, ctypes.addressof(nothing)):
        machine.intarsia_parallel_for(context, machine.address["job"], counters.ctypes.data, 9)
    assert (counters == 2).all()


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize(("n", "repeats"), [(10, 100_000), (1_000_000, 1)])
def test_a_million_small_jobs(machine, threads, n, repeats):
    counters = np.zeros((4, n), np.int64)
    with Context(machine, threads) as context:
        machine.drive(context.at, counters.ctypes.data, n, repeats)
    for row in range(4):
        used = n - 3 * row
        assert (counters[row, :used] == len(range(row, repeats, 4))).all()
        assert not counters[row, used:].any()


def test_several_callers_at_once(machine):
    """One of them has the workers, the others run serially; all are right."""
    with Context(machine, 3) as context:
        all_counters = [np.zeros((4, 16), np.int64) for _ in range(6)]
        threads = [
            threading.Thread(target=machine.drive, args=(context.at, c.ctypes.data, 16, 4000))
            for c in all_counters
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert not any(t.is_alive() for t in threads)
    for counters in all_counters:
        for row in range(4):
            assert (counters[row, : 16 - 3 * row] == 1000).all() and not counters[row, 16 - 3 * row :].any()


def test_nested_jobs_run_in_their_caller(machine):
    with Context(machine, 3) as context:
        for _ in range(200):
            env = np.zeros(1 + 5 * 8, np.int64)
            env[0] = context.at
            machine.intarsia_parallel_for(context.at, machine.address["nested"], env.ctypes.data, 5)
            assert (env[1:] == 1).all()


def test_create_and_destroy_many_times(machine):
    before = threading_count()
    for k in range(200):
        with Context(machine, 1 + k % 4) as context:
            if k % 3:
                assert (context.run(k) == 1).all() or k == 0
    machine.intarsia_pool_destroy(None)
    assert threading_count() == before


def test_workers_that_sleep_are_woken(machine):
    with Context(machine, 3) as context:
        for pause in (0, 0.0002, 0.01, 0.03) * 3:
            time.sleep(pause)
            assert (context.run(50, "slow") == 1).all()


def test_idle_workers_use_no_processor_time(machine):
    with Context(machine, 4) as context:
        context.run(100)
        time.sleep(0.02)
        start = time.process_time()
        time.sleep(0.1)
        assert time.process_time() - start < 0.02


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_works_alone(machine):
    with Context(machine, 3) as context:
        context.run(10)
        child = os.fork()
        if child == 0:
            good = (context.run(100) == 1).all()
            machine.intarsia_pool_destroy(context.pool)
            with Context(machine, 3) as own:
                good = good and (own.run(100) == 1).all()
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (context.run(100) == 1).all()


@pytest.mark.parametrize(
    "triple",
    [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "riscv64-unknown-linux-gnu",
        "x86_64-apple-darwin",
        "arm64-apple-macosx",
    ],
)
def test_code_for_other_machines(triple):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(pool_ir(triple), llvm.create_context())
    module.triple = triple
    module.verify()
    text = llvm.Target.from_triple(triple).create_target_machine(reloc="pic").emit_assembly(module)
    assert "intarsia_parallel_for" in text
    assert ("syscall" in text) == ("linux" in triple)


def threading_count() -> int:
    """Threads of this process as the system sees them."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()
