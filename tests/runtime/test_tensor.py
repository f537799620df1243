"""Arguments: what is taken as it is, what is copied, and what is refused in which words."""

import array

import numpy as np
import pytest

from intarsia.runtime.tensor import Signature, as_dense, bind
from intarsia.support.errors import InputError

X = Signature("x", "float32", ("n", 3))
F32 = np.dtype("float32")


def test_dense_arrays_are_taken_in_place():
    a = np.zeros((2, 3), np.float32)
    assert np.shares_memory(as_dense(a, X, F32), a)


@pytest.mark.parametrize(
    "view", [lambda a: a[::2], lambda a: a[::-1], lambda a: a.T.copy().T, lambda a: a[:, ::-1]]
)
def test_strided_arrays_are_copied(view):
    a = view(np.arange(12, dtype=np.float32).reshape(4, 3))
    got = as_dense(a, X, F32)
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, a)


def test_other_byte_order_is_converted():
    a = np.arange(3, dtype=">f4").reshape(1, 3)
    np.testing.assert_array_equal(as_dense(a, X, F32), a)


def test_the_buffer_protocol_is_enough():
    got = as_dense(memoryview(array.array("f", [1, 2, 3])).cast("B").cast("f", (1, 3)), X, F32)
    np.testing.assert_array_equal(got, [[1, 2, 3]])


def test_dlpack_is_enough():
    class Foreign:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **options):
            return self.a.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    a = np.ones((2, 3), np.float32)
    assert np.shares_memory(as_dense(Foreign(a), X, F32), a)


def test_torch_tensors_are_taken_in_place():
    torch = pytest.importorskip("torch")
    t = torch.ones((2, 3), requires_grad=True)
    got = as_dense(t, X, F32)
    assert got.__array_interface__["data"][0] == t.data_ptr()


def test_numbers_and_lists_take_the_inputs_dtype():
    assert as_dense(2, Signature("s", "float32", ()), F32).dtype == F32
    assert as_dense([[1.5, 2, 3]], X, F32).shape == (1, 3)
    with pytest.raises(InputError, match="CALL-004"):
        as_dense(1.5, Signature("s", "int64", ()), np.dtype("int64"))
    with pytest.raises(InputError, match="CALL-004"):
        as_dense(300, Signature("s", "uint8", ()), np.dtype("uint8"))


def test_refusals_name_the_input_and_the_remedy():
    with pytest.raises(
        InputError, match=r"CALL-004: input 'x' has dtype float64(.|\n)*x.astype\(numpy.float32\)"
    ):
        as_dense(np.zeros((2, 3)), X, F32)
    with pytest.raises(InputError, match=r"CALL-003: input 'x' has 1 dimensions(.|\n)*x\[None\]"):
        as_dense(np.zeros(3, np.float32), X, F32)
    with pytest.raises(InputError, match="CALL-007: input 'x' is a builtins.object"):
        as_dense(object(), X, F32)


def test_names_are_bound_and_wrong_ones_listed():
    signatures = [X, Signature("y", "float32", ())]
    assert bind(signatures, (1,), {"y": 2}) == [1, 2]
    with pytest.raises(InputError, match="CALL-001: missing inputs: y"):
        bind(signatures, (1,), {})
    with pytest.raises(InputError, match="CALL-002(.|\n)*no input z; not given: y(.|\n)*x, y"):
        bind(signatures, (1,), {"z": 2})
    with pytest.raises(InputError, match="CALL-002: given twice: x"):
        bind(signatures, (1,), {"x": 2})
    with pytest.raises(InputError, match="CALL-002: 3 inputs"):
        bind(signatures, (1, 2, 3), {})
