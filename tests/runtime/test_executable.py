"""Compiled models as users meet them: calls, errors, files, threads."""

import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "vm"))
import programs as P

import intarsia
from intarsia.kernel.target import Target
from intarsia.runtime import artifact
from intarsia.vm.executable import _admit


@pytest.fixture(scope="module")
def chain():
    return intarsia.compile(P.matmul_chain(), threads=1)


@pytest.fixture(scope="module", params=["native", "interpreter"])
def product(request):
    return intarsia.compile(P.two_inputs_one_symbol(), threads=1, tier=request.param)


def test_inputs_and_outputs_are_described(chain):
    assert [str(s) for s in chain.inputs] == ["x: float32[n, 4]"]
    assert [s.shape for s in chain.outputs] == [("n", 3), ("n", 8), (3,)]


def test_run_takes_and_gives_names(product):
    x = P.floats(2, 3)
    got = product.run({"y": x, "x": x})
    np.testing.assert_allclose(got["output_0"], x * x, rtol=1e-6)


def test_keyword_arguments(product):
    x, y = P.floats(2, 3), P.floats(2, 3)
    np.testing.assert_allclose(product(x, y=y), x * y, rtol=1e-6)


def test_two_inputs_that_disagree_are_both_named(product):
    with pytest.raises(
        intarsia.InputError, match=r"CALL-005(.|\n)*dimension 0 of input 'y' is 3(.|\n)*n = 2(.|\n)*x"
    ):
        product(P.floats(2, 3), P.floats(3, 3))
    assert product(P.floats(2, 3), P.floats(2, 3)).shape == (2, 3)


def test_a_wrong_constant_dimension(product):
    with pytest.raises(intarsia.InputError, match="dimension 1 of input 'x' is 4, but must be 3"):
        product(P.floats(2, 4), P.floats(2, 3))


def test_a_failed_run_time_check_names_both_sides():
    exe = intarsia.compile(P.broadcast_of_two_symbols(), threads=1)
    with pytest.raises(intarsia.Error, match=r"RUN-001(.|\n)*n = 3(.|\n)*m = 4|m = 4(.|\n)*n = 3"):
        exe(P.floats(3), P.floats(4))


def test_a_dimension_that_no_size_of_the_symbol_gives():
    exe = intarsia.compile(P.compound_dimension(), threads=1)
    with pytest.raises(intarsia.InputError, match=r"must be 2\*n \+ 1"):
        exe(P.floats(4))


def test_strided_arguments_work(product):
    x = P.floats(6, 6)
    np.testing.assert_allclose(product(x[::3, ::-2], x[1::3, ::2]), x[::3, ::-2] * x[1::3, ::2], rtol=1e-6)


def test_read_only_arguments_work(product):
    x = P.floats(2, 3)
    x.flags.writeable = False
    np.testing.assert_allclose(product(x, x), x * x, rtol=1e-6)


def test_save_and_load(chain, tmp_path):
    path = tmp_path / "m.intarsia"
    chain.save(path)
    loaded = intarsia.load(path, threads=1)
    x = P.floats(3, 4)
    for a, b in zip(loaded(x), chain(x), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.inputs == chain.inputs and loaded.outputs == chain.outputs
    loaded.save(tmp_path / "again.intarsia")
    assert (tmp_path / "again.intarsia").read_bytes() == path.read_bytes()


def test_control_flow_survives_a_file(tmp_path):
    exe = intarsia.compile(P.counting_loop(10), threads=1)
    exe.save(tmp_path / "m")
    x = P.floats(2)
    np.testing.assert_array_equal(intarsia.load(tmp_path / "m")(x), exe(x))


def test_damaged_files_are_refused(chain, tmp_path):
    path = tmp_path / "m.intarsia"
    chain.save(path)
    data = path.read_bytes()
    for length in (0, 10, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(intarsia.ArtifactError, match="cut"):
            intarsia.load(tmp_path / "cut")


def test_a_well_formed_file_with_a_foreign_program_is_refused(chain, tmp_path):
    path = tmp_path / "m.intarsia"
    chain.save(path)
    meta, sections = artifact.load(path)
    for change in [
        {"functions": []},
        {"functions": [meta["functions"][0] | {"params": []}]},
        {"functions": [meta["functions"][0] | {"objects": 1}]},
        {"constants": [c | {"shape": [1 << 40]} for c in meta["constants"]]},
        {"constants": [c | {"offset": 1 << 50} for c in meta["constants"]]},
        {"target": {"triple": 5, "what": 1}},
        {"inputs": []},
        {"objects": 1000},
        {"kernels": "none"},
    ]:
        artifact.save(tmp_path / "changed", meta | change, {k: bytes(v) for k, v in sections.items()})
        with pytest.raises(intarsia.ArtifactError, match="ART-00"):
            intarsia.load(tmp_path / "changed")


def test_code_for_another_processor_is_refused():
    here = Target(triple="x86_64-unknown-linux-gnu", features="+avx2,+fma")
    _admit(here, here)
    with pytest.raises(intarsia.ArtifactError, match="ART-008.*avx512f"):
        _admit(Target(triple=here.triple, features="+avx2,+avx512f"), here)
    with pytest.raises(intarsia.ArtifactError, match="ART-008.*aarch64"):
        _admit(Target(triple="aarch64-unknown-linux-gnu"), here)


@pytest.mark.parametrize("build", [P.matmul_chain, P.counting_loop, P.arange_to_argument])
def test_many_threads_share_an_executable(build):
    exe = intarsia.compile(build(), threads=1)
    args = next(calls[0] for _, b, calls in P.CASES if b is build)
    want = [np.array(r) for r in (exe(*args) if isinstance(exe(*args), tuple) else [exe(*args)])]

    def work(_) -> bool:
        for _ in range(200):
            got = exe(*args)
            for a, b in zip(got if isinstance(got, tuple) else [got], want, strict=True):
                if not np.array_equal(a, b):
                    return False
        return True

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(32)))
        before = resident()
        assert all(pool.map(work, range(32)))
    assert resident() - before < 8 << 20


@pytest.mark.parametrize("tier", ["native", "interpreter"])
def test_an_executable_that_is_dropped_goes_at_once(tier):
    gc.disable()
    try:
        exe = intarsia.compile(P.identity(), threads=2, tier=tier)
        exe(P.floats(1, 2))
        machine, gone = weakref.ref(exe._run), weakref.ref(exe)
        del exe
        assert gone() is None and machine() is None
    finally:
        gc.enable()


def test_failed_calls_leak_nothing():
    exe = intarsia.compile(P.arange_to_argument(), threads=1)
    for _ in range(20):
        exe(P.integer(10_000))
    before = resident()
    for _ in range(300):
        with pytest.raises(intarsia.Error):
            exe(np.zeros(3, np.int64))
        exe(P.integer(10_000))
    assert resident() - before < 4 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_statistics(chain):
    s = chain.stats()
    assert s.kernels >= 2 and s.code_bytes > 0 and s.constant_bytes >= (32 + 8 + 24) * 4


def test_code_for_another_processor_can_be_made_and_saved_but_not_called(tmp_path):
    exe = intarsia.compile(P.identity(), threads=1, target="aarch64")
    exe.save(tmp_path / "m")
    with pytest.raises(intarsia.ArtifactError, match="ART-008"):
        exe(P.floats(1, 2))
    with pytest.raises(intarsia.ArtifactError, match="ART-008"):
        intarsia.load(tmp_path / "m")


def test_progress_is_told():
    told: list[str] = []
    intarsia.compile(P.identity(), threads=1, progress=told.append)
    assert told[0] == "reading" and "generating code: program" in told


def test_import_is_quick_and_light():
    code = (
        "import sys, time; t = time.perf_counter(); import intarsia; d = time.perf_counter() - t;"
        "assert 'llvmlite' not in sys.modules and 'onnx' not in sys.modules; print(d, intarsia.__version__)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(out.split()[0]) < 0.3


def test_models_that_are_none_are_refused(tmp_path):
    with pytest.raises(intarsia.ModelError, match="MODEL-001"):
        intarsia.compile(tmp_path / "nothing.onnx")
    with pytest.raises(intarsia.ModelError, match="MODEL-002"):
        intarsia.compile(42)
    with pytest.raises(intarsia.UnsupportedError, match="API-001"):
        intarsia.compile(P.identity(), tier="magic")


def test_threads_come_from_the_argument_or_the_environment(monkeypatch):
    from intarsia.api import thread_count

    monkeypatch.setenv("INTARSIA_NUM_THREADS", "3")
    assert thread_count(None) == 3 and thread_count(5) == 5
    monkeypatch.setenv("INTARSIA_NUM_THREADS", "many")
    with pytest.raises(intarsia.UnsupportedError, match="API-002"):
        thread_count(None)
