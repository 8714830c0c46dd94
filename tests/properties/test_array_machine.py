"""Random lives of arrays: writes, resizes, appends, attributes, new handles; NumPy and a dict agree throughout."""

import shutil
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import gzarr
from gzarr.storage import LocalStore, MemoryStore, Store
from tests.properties import cases
from tests.properties.test_resizing import fill_of, resized

names = st.sampled_from(["a", "b", "units"])
attributes = st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2)


class ArrayMachine(RuleBasedStateMachine):
    """One handle writes, and is opened anew now and then; another reads after every step."""

    local = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp() if self.local else None

    @initialize(case=cases.cases(min_ndim=1))
    def create(self, case: cases.Case) -> None:
        self.case = case
        self.array = case.make(self.new_store())
        self.model = case.model()
        self.attrs: dict[str, Any] = {}

    def new_store(self) -> Store:
        return MemoryStore() if self.folder is None else LocalStore(self.folder)

    @rule(data=st.data())
    def write_basic(self, data: st.DataObject) -> None:
        key = data.draw(cases.basic_keys(self.model.shape))
        value, equal = data.draw(cases.values_for(self.case.dtype, np.shape(self.model[key])))
        self.array[key] = value
        self.model[key] = equal

    @rule(data=st.data())
    def write_orthogonal(self, data: st.DataObject) -> None:
        key = data.draw(cases.orthogonal_keys(self.model.shape))
        index, shape = cases.orthogonal_index(key, self.model.shape)
        value, equal = data.draw(cases.values_for(self.case.dtype, shape))
        self.array.oindex[key] = value
        self.model[index] = np.broadcast_to(cases.as_array(equal), shape).reshape(self.model[index].shape)

    @rule(data=st.data())
    def write_points(self, data: st.DataObject) -> None:
        key = data.draw(cases.coordinate_keys(self.model.shape))
        index = tuple(np.asarray(i) for i in key)
        value, equal = data.draw(cases.values_for(self.case.dtype, np.shape(self.model[index])))
        self.array.vindex[key] = value
        self.model[index] = equal

    @rule(data=st.data())
    def write_mask(self, data: st.DataObject) -> None:
        mask = data.draw(cases.masks(self.model.shape))
        value, equal = data.draw(cases.values_for(self.case.dtype, self.model[mask].shape))
        self.array[mask] = value
        self.model[mask] = equal

    @rule(data=st.data())
    def write_blocks(self, data: st.DataObject) -> None:
        key, means = data.draw(cases.block_keys(self.array))
        value, equal = data.draw(cases.values_for(self.case.dtype, np.shape(self.model[means])))
        self.array.blocks[key] = value
        self.model[means] = equal

    @rule()
    def write_fill_value(self) -> None:
        self.model[...] = fill_of(self.case)
        self.array[...] = self.model

    @rule(data=st.data())
    def resize(self, data: st.DataObject) -> None:
        shape = tuple(data.draw(st.integers(0, min(n + 3, 12))) for n in self.model.shape)
        self.array.resize(shape)
        self.model = resized(self.model, shape, fill_of(self.case))

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        axis = data.draw(st.integers(0, self.model.ndim - 1))
        length = data.draw(st.integers(0, 3))
        shape = tuple(length if i == axis else n for i, n in enumerate(self.model.shape))
        value, equal = data.draw(cases.values_for(self.case.dtype, shape).filter(lambda v: np.shape(v[0]) == shape))
        assert self.array.append(value, axis) == tuple(n + length * (i == axis) for i, n in enumerate(self.model.shape))
        self.model = np.concatenate([self.model, np.asarray(equal, self.model.dtype).reshape(shape)], axis)

    @rule(name=names, value=attributes)
    def set_attribute(self, name: str, value: Any) -> None:
        self.array.attrs[name] = self.attrs[name] = value

    @rule(values=st.dictionaries(names, attributes))
    def replace_attributes(self, values: dict[str, Any]) -> None:
        self.array.attrs.put(values)
        self.attrs = dict(values)

    @rule()
    def reopen(self) -> None:
        again = self.new_store() if self.folder is not None else self.array.store
        self.array = gzarr.open_array(again, mode="r+", write_empty_chunks=self.case.write_empty)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.array.shape == self.model.shape
        cases.same(np.asarray(self.array), self.model)
        fresh = gzarr.open_array(self.array.store, mode="r")
        cases.same(np.asarray(fresh), self.model)
        assert fresh.attrs.asdict() == self.array.attrs.asdict() == self.attrs
        assert self.array.nchunks_initialized <= self.array.nchunks

    def teardown(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder)


class LocalArrayMachine(ArrayMachine):
    local = True


@pytest.mark.parametrize(("machine", "share"), [(ArrayMachine, 0.6), (LocalArrayMachine, 0.1)])
def test_arrays_agree_with_numpy_throughout_their_lives(machine: type[ArrayMachine], share: float) -> None:
    examples = max(int(settings().max_examples * share), 1)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=20))
