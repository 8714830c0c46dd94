"""Tensors of PyTorch go wherever arrays of NumPy do. Without PyTorch, a double of it shows most of that."""

import importlib
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.tensors import Exported, memory_of, numpy_dtype
from tests.support import torch_double

DATA = np.arange(24, dtype="f4").reshape(4, 6)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(params=["double", "torch"] if find_spec("torch") else ["double"])
def torch(request, monkeypatch):
    if request.param == "torch":
        return importlib.import_module("torch")
    monkeypatch.setitem(sys.modules, "torch", torch_double)
    return torch_double


@pytest.fixture
def array():
    return gzarr.create_array(data=DATA, chunks=(3, 4))


def forms(torch):
    """Tensors of DATA in every form that NumPy's protocols refuse or that has other strides."""
    plain = torch.tensor(DATA)
    return {
        "plain": plain,
        "gradient": torch.tensor(DATA).requires_grad_(),
        "transposed": torch.tensor(DATA.T.copy()).T,
        "bfloat16": plain.bfloat16(),
    }


@pytest.mark.parametrize("form", ["plain", "gradient", "transposed", "bfloat16"])
def test_arrays_are_made_of_tensors(torch, tmp_path, form):
    value = forms(torch)[form]
    dtype = BFLOAT16 if form == "bfloat16" else np.dtype("f4")
    group = gzarr.open_group(tmp_path / "g.zarr", mode="w")
    group["item"] = value
    gzarr.save(tmp_path / "one.zarr", value)
    gzarr.save(tmp_path / "many.zarr", value, b=value)
    made = (
        gzarr.create_array(data=value, chunks=(3, 4)),
        gzarr.array(value),
        group.create_dataset("set", data=value, shape=value.shape),
        group["item"],
        gzarr.open_array(tmp_path / "one.zarr"),
        gzarr.open_group(tmp_path / "many.zarr")["b"],
    )
    for array in made:
        assert (array.dtype, array.shape) == (dtype, DATA.shape)
        np.testing.assert_array_equal(array[...].astype("f4"), DATA)
    assert gzarr.zeros_like(value).dtype == dtype
    assert gzarr.array([value[0], value[1]]).dtype == dtype


@pytest.mark.parametrize("form", ["plain", "gradient", "transposed", "bfloat16"])
@pytest.mark.parametrize("dtype", ["f4", "f8", BFLOAT16], ids=str)
def test_tensors_are_written(torch, form, dtype):
    value = forms(torch)[form]
    array = gzarr.zeros(DATA.shape, dtype=dtype, chunks=(3, 4))
    array[...] = value
    np.testing.assert_array_equal(array[...].astype("f4"), DATA)
    array[1] = value[2]
    array[0, 0] = value[3, 5]
    array.oindex[[3], :] = value[:1]
    array.append(value)
    expected = np.concatenate([DATA, DATA])
    expected[1], expected[0, 0], expected[3] = DATA[2], DATA[3, 5], DATA[0]
    np.testing.assert_array_equal(array[...].astype("f4"), expected)


def test_a_pending_conjugation_is_done(torch):
    values = DATA + 1j
    array = gzarr.array(torch.tensor(values.astype("c8")).conj())
    np.testing.assert_array_equal(array[...], values.conj())
    with pytest.raises(ValueError, match="conjugated or negated"):
        array.get_basic_selection(out=torch.tensor(values.astype("c8")).conj())


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_tensors_are_read_into(torch, array, name):
    def zeros(*shape):
        return torch.zeros(*shape, dtype=getattr(torch, name))

    whole, turned, rows, points = zeros(4, 6), zeros(6, 4).T, zeros(2, 6), zeros(3)
    assert array.get_basic_selection(out=whole) is whole
    array.get_basic_selection(out=turned)
    array.get_orthogonal_selection([1, 3], out=rows)
    gzarr.read_many([(array, torch.tensor(DATA > 20), points)])
    for out, expected in ((whole, DATA), (turned, DATA), (rows, DATA[[1, 3]]), (points, DATA[DATA > 20])):
        np.testing.assert_array_equal(memory_of(out).astype("f4"), expected)


def test_tensors_that_cannot_be_read_into_are_refused(torch, array):
    refused = {
        "requires a gradient": torch.zeros(4, 6).requires_grad_(),
        "expanded": torch.zeros(1, 6).expand(4, 6),
        "on the device": torch.zeros(4, 6).to("meta"),
        "shape": torch.zeros(3, 6),
    }
    for message, out in refused.items():
        with pytest.raises(ValueError, match=message):
            array.get_basic_selection(out=out)
    with pytest.raises(TypeError, match="cannot hold"):
        array.get_basic_selection(out=torch.zeros(4, 6, dtype=torch.int32))
    with pytest.raises(TypeError, match="'meta' has no values"):
        array[...] = torch.zeros(4, 6).to("meta")


def test_tensors_select(torch, array):
    rows, columns, mask = torch.tensor([1, 3]), torch.tensor([2, -1]), torch.tensor(DATA > 5)
    np.testing.assert_array_equal(array[rows], DATA[[1, 3]])
    np.testing.assert_array_equal(array[rows, columns], DATA[[1, 3], [2, -1]])
    np.testing.assert_array_equal(array.oindex[rows, columns], DATA[[1, 3]][:, [2, -1]])
    np.testing.assert_array_equal(array.vindex[rows, columns], DATA[[1, 3], [2, -1]])
    np.testing.assert_array_equal(array.oindex[torch.tensor([True, False, True, False])], DATA[[0, 2]])
    np.testing.assert_array_equal(array[torch.tensor([True, False, True, False])], DATA[[0, 2]])
    np.testing.assert_array_equal(array[torch.tensor(2)], DATA[2])
    np.testing.assert_array_equal(array[torch.tensor(1) : torch.tensor(3)], DATA[1:3])
    for found in (array[mask], array.vindex[mask], array.get_mask_selection(mask)):
        np.testing.assert_array_equal(found, DATA[DATA > 5])
    array[mask] = 0
    assert array[...].sum() == 15


def test_a_boolean_tensor_is_no_index(torch, array):
    """It has an integer's value, unlike a boolean array of NumPy."""
    with pytest.raises(gzarr.SelectionError, match="a boolean is not an index"):
        array[torch.tensor(True)]
    with pytest.raises(gzarr.SelectionError, match="a boolean is not an index"):
        array[torch.tensor(True)] = 0


def test_tensors_are_fill_values_and_attributes(torch):
    for fill in (torch.tensor(2.0), torch.tensor(2.0).requires_grad_(), torch.tensor(2.0).bfloat16()):
        array = gzarr.create_array(shape=(3,), dtype=torch.float32, fill_value=fill, attributes={"fill": fill})
        assert array[...].tolist() == [2.0, 2.0, 2.0]
        assert gzarr.open_array(array.store, "r").attrs["fill"] == 2.0


def test_data_types_are_numpys(torch):
    assert numpy_dtype(torch.float32) == np.float32
    assert gzarr.zeros(3, dtype=torch.bfloat16).dtype == BFLOAT16
    assert gzarr.zeros(3).astype(torch.int16)[0].dtype == np.int16
    with pytest.raises(gzarr.errors.UnknownDataTypeError, match="quint8"):
        gzarr.zeros(3, dtype=torch.quint8)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dlpack_exports_types_of_ml_dtypes(array, name):
    torch = pytest.importorskip("torch")
    array = gzarr.array(DATA.astype(name), chunks=(3, 4))
    tensor = torch.from_dlpack(array)
    assert tensor.dtype is getattr(torch, name)
    np.testing.assert_array_equal(tensor.float().numpy(), array[...].astype("f4"))
    array[...] = tensor
    np.testing.assert_array_equal(array[...].astype("f4"), tensor.float().numpy())


def test_ml_dtypes_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(gzarr.errors.MissingExtraError, match=r"gzarr\[ml\]"):
        numpy_dtype(torch_double.DType("float6_of_tomorrow"))


def test_tensors_on_a_gpu_are_copied_or_refused(monkeypatch, array):
    monkeypatch.setitem(sys.modules, "torch", torch_double)
    for value in forms(torch_double).values():
        array[...] = 0
        array[...] = value.to("cuda")
        np.testing.assert_array_equal(array[...], DATA)
        assert gzarr.array(value.to("cuda")).dtype == numpy_dtype(value.dtype)
    np.testing.assert_array_equal(array[torch_double.tensor([1, 3]).to("cuda")], DATA[[1, 3]])
    with pytest.raises(ValueError, match="device='cuda'"):
        array.get_basic_selection(out=torch_double.zeros(4, 6).to("cuda"))
    with pytest.raises(TypeError, match="CuPy lacks"):
        array.get_basic_selection(out=torch_double.zeros(4, 6).bfloat16().to("cuda"))


def test_tensors_on_a_gpu_are_written_and_read_into_there(monkeypatch, array):
    monkeypatch.setitem(sys.modules, "torch", torch_double)
    there = array.to(GpuBackend(EmulatedDevice()))
    for value in forms(torch_double).values():
        array[...] = 0
        there[...] = value.to("cuda")
        np.testing.assert_array_equal(array[...], DATA)
    out = torch_double.zeros(4, 6).to("cuda")
    assert there.get_basic_selection(out=out) is out
    np.testing.assert_array_equal(out.cpu().numpy(), DATA)
    with pytest.raises(TypeError, match="CuPy lacks"):
        there.get_basic_selection(out=torch_double.zeros(4, 6).bfloat16().to("cuda"))


def test_arrays_of_other_libraries_are_exported_by_themselves():
    """CuPy's too: it lets the stream that is named wait."""
    asked = []
    array = SimpleNamespace(
        dtype=DATA.dtype, __dlpack_device__=lambda: (2, 0), __dlpack__=lambda **kw: asked.append(kw)
    )
    Exported(array).__dlpack__(stream=7, max_version=(1, 0))
    assert asked == [{"stream": 7, "max_version": (1, 0)}]
    assert Exported(array).__dlpack_device__() == (2, 0)
