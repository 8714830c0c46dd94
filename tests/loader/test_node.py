"""Ranks of a host that share a pool: the same batches as alone, few decodes, and what if one dies or waits."""

import fcntl
import hashlib
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr import concurrency
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.loader import node, node_memory
from gzarr.loader.shared_feeds import SharedFeed
from gzarr.loader.stats import Meter
from gzarr.tensors import to_host
from tests.support.threads import side_by_side

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd_create and /proc are Linux's")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (640, 24, 24)).astype("u1")
OFFSETS = np.concatenate([[0], np.cumsum(RNG.integers(0, 9, 300))])


@pytest.fixture
def images(tmp_path):
    group = gzarr.open_group(tmp_path / "images.zarr", "w")
    group.create_array("image", data=IMAGES, chunks=(16, 24, 24))
    group.create_array("label", data=np.arange(640))
    return tmp_path / "images.zarr"


def some_crops(**keywords):
    arrays = [gzarr.array(IMAGES[n, : 8 + n], chunks=(7, 9)) for n in range(16)]
    return arrays, {"crops": gzarr.Crops((12, 12), **keywords)}


CASES = {
    "pool": lambda: ({"x": gzarr.array(IMAGES, chunks=(16, 24, 24)), "y": np.arange(640)}, {"shuffle": True}),
    "cast": lambda: (gzarr.array(IMAGES, chunks=(16, 24, 24)), {"shuffle": True, "dtype": "f4", "drop_last": True}),
    "direct": lambda: (gzarr.array(IMAGES, chunks=(16, 9, 24)), {"shuffle": True}),
    "in order": lambda: (gzarr.array(IMAGES, chunks=(16, 24, 24)), {}),
    "blocks": lambda: (gzarr.array(IMAGES, chunks=(16, 24, 24)), {"shuffle": "blocks", "block_chunks": 3}),
    "windows": lambda: (gzarr.array(IMAGES, chunks=(16, 24, 24)), {"shuffle": True, "window": gzarr.Window(5)}),
    "weights": lambda: (gzarr.array(IMAGES, chunks=(16, 24, 24)), {"weights": np.arange(640.0)}),
    "padded crops": lambda: (c := some_crops(n=300, pad=-1))[0] and (c[0], c[1] | {"dtype": "i4"}),
    "padded tiles": lambda: (c := some_crops(stride=(5, 5), pad=7))[0] and (c[0], c[1] | {"shuffle": True}),
    "ragged": lambda: (
        {n: gzarr.Ragged(gzarr.array(np.arange(OFFSETS[-1]), chunks=50), OFFSETS, padded=n == "x") for n in "xy"},
        {"shuffle": True},
    ),
}


def be_patient(monkeypatch):
    """Let no rank do without another one that gets no processor for a while."""
    for name in ("PATIENCE_S", "JOIN_S"):
        monkeypatch.setattr(node, name, 60.0)


def iterate(loaders, epochs=2):
    """The digests of all batches, each loader on a thread of its own."""
    return side_by_side(lambda loader: [digest(batch) for _ in range(epochs) for batch in loader], loaders)


def digest(batch):
    if isinstance(batch, dict):
        return [digest(batch[name]) for name in sorted(batch)]
    return hashlib.md5(np.ascontiguousarray(to_host(batch)).tobytes()).hexdigest()


def make(case, rank, world_size, **keywords):
    arrays, more = CASES[case]()
    return gzarr.Loader(arrays, 8, rank=rank, world_size=world_size, **{"memory": "50 %", "seed": 3} | more | keywords)


@pytest.mark.parametrize(("case", "n"), [*((case, 3) for case in CASES), ("pool", 2)])
def test_batches_are_those_of_ranks_alone(case, n, monkeypatch):
    memory = 400_000
    be_patient(monkeypatch)
    expected = iterate([make(case, rank, n, share="none", memory=memory) for rank in range(n)])
    loaders = [make(case, rank, n, share="node", memory=memory) for rank in range(n)]
    assert all(loader._setup.local for loader in loaders)
    assert iterate(loaders) == expected
    assert not any(loader._setup._alone for loader in loaders)


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_device_gets_its_own_samples(monkeypatch, is_pinned):
    mapped = []

    def map_once(device, host):
        mapped.append(host.ctypes.data)
        if not is_pinned:
            raise gzarr.DeviceError("memory cannot be pinned")
        return host

    monkeypatch.setattr(EmulatedDevice, "mapped", map_once)
    expected = iterate([make("pool", rank, 2, share="none") for rank in range(2)])
    assert iterate([make("pool", rank, 2, share="node", device="emulated") for rank in range(2)]) == expected
    assert len(mapped) == 2  # once for each rank, not for each epoch


@pytest.mark.parametrize("n", [2, 4, 8])
def test_ranks_decode_as_often_as_one(n, monkeypatch):
    be_patient(monkeypatch)
    z = gzarr.array(np.zeros((4000, 90, 90), "u1"), chunks=(16, 90, 90))
    loaders = [
        gzarr.Loader(z, 8, shuffle=True, memory="50 %", rank=rank, world_size=n, share="node") for rank in range(n)
    ]
    iterate(loaders, 1)
    decodes = sum(loader.stats().chunks for loader in loaders) / 250
    assert decodes < 2.2
    assert loaders[0].summary().decodes[""] == pytest.approx(decodes, rel=0.15)
    assert sum(array.nbytes for array in loaders[0]._setup.reused[None].arrays.values()) < z.nbytes / 2


def test_places_are_those_of_loaders_alone():
    loaders = [make("pool", rank, 2, share="node") for rank in range(2)]
    iterators = list(map(iter, loaders))
    for _ in range(5):
        for iterator in iterators:
            next(iterator)
    assert loaders[0].state_dict() == loaders[1].state_dict()
    expected = iterate([resumed(make("pool", rank, 3, share="none"), loaders[0].state_dict()) for rank in range(3)])
    again = [resumed(make("pool", rank, 3, share="node"), loaders[0].state_dict()) for rank in range(3)]
    assert iterate(again) == expected


def resumed(loader, state):
    loader.load_state_dict(state)
    return loader


def test_a_rank_that_never_comes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 0.3)
    expected = iterate([make("pool", rank, 3, share="none") for rank in range(3)])
    assert iterate([make("pool", rank, 3, share="node") for rank in range(2)]) == expected[:2]


def test_ranks_that_do_not_go_on_are_done_without_at_once(monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 2.0)
    loaders = [make("pool", rank, 9, share="node", memory=180_000) for rank in range(9)]
    stopped = [iter(loader) for loader in loaders[1:]]
    for iterator in stopped:
        next(iterator)
    begin = time.monotonic()
    iterate(loaders[:1], 1)
    assert time.monotonic() - begin < 15  # not 16, which is waiting for one after the other


def test_a_rank_that_stops_for_a_while_goes_on(monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 0.3)
    expected = iterate([make("pool", rank, 2, share="none") for rank in range(2)], 1)
    loaders = [make("pool", rank, 2, share="node", memory=100_000) for rank in range(2)]
    late = iter(loaders[1])
    first = [next(late) for _ in range(3)]
    assert iterate(loaders[:1], 1) == expected[:1]
    assert [digest(batch) for batch in [*first, *late]] == expected[1]


def test_an_epoch_that_was_left_begins_anew():
    loaders = [make("pool", rank, 2, share="node") for rank in range(2)]
    for loader in loaders:
        next(iter(loader))
    expected = iterate([resumed(make("pool", r, 2, share="none"), loaders[0].state_dict()) for r in range(2)])
    for loader in loaders:
        loader.set_epoch(0)
        loader.load_state_dict({**loader.state_dict(), "taken": [[1, 16]]})
    assert iterate(loaders) == expected


def test_orders_that_differ_are_an_error():
    orders = [np.arange(640), np.arange(640)[::-1]]
    loaders = [
        make("pool", rank, 2, share="node", shuffle=False, sampler=(lambda p, _, o=orders[rank]: o[p]))
        for rank in range(2)
    ]
    with pytest.raises(RuntimeError, match="different orders of samples: give all of them one sampler"):
        iterate(loaders, 1)


def test_ranks_are_those_that_a_launcher_tells(monkeypatch):
    for name, value in {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "RANK": "3", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert make("pool", 3, 4)._setup.local.ranks == (2, 3)
    assert make("pool", 3, 4, share="none")._setup.local is None
    assert make("pool", 0, 1)._setup.local is None
    assert make("pool", 3, 8)._setup.local is None  # of other ranks than the launcher's, such as groups of them
    with pytest.raises(ValueError, match="rank=1 of world_size=2 is not what the launcher calls this process"):
        make("pool", 1, 2, share="node")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert make("pool", 3, 4)._setup.local is None  # whose hosts have ranks in turn
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert make("pool", 3, 4, memory=6_000)._setup.local is None  # does not fit
    with pytest.raises(ValueError, match="memory=6000 bytes are less than one batch takes"):
        make("pool", 3, 4, memory=6_000, share="node")
    with pytest.raises(ValueError, match="rank=3 of world_size=4 is not among the ranks of this host"):
        make("pool", 3, 4, share=gzarr.NodePool(ranks=[0, 1]))
    with pytest.raises(ValueError, match="share must be"):
        make("pool", 3, 4, share="all")


# -- what must not happen --------------------------------------------------------------------------------------------


def agree_with_those_alone(monkeypatch, make_one, n=2):
    """Whether ranks that ask for the same in one way or another get what each gets alone."""
    monkeypatch.setattr(node, "PATIENCE_S", 0.3)
    expected = iterate([make_one(rank, share="none") for rank in range(n)])
    return iterate([make_one(rank, share="node") for rank in range(n)]) == expected


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_arrays_are_told_apart_where_samples_of_their_contents_are_equal(tmp_path, monkeypatch, where):
    arrays = []
    for value in (1, 2):
        data = np.zeros((4096, 8), "u1")
        data[80:96] = value  # where nothing is looked at for states
        if where == "memory":
            arrays.append(gzarr.array(data, chunks=(16, 8), compressors=None))
        else:
            arrays.append(gzarr.create_array(tmp_path / f"{value}.zarr", data=data, chunks=(16, 8), compressors=None))
    assert arrays[0][...].sum() != arrays[1][...].sum()

    def make_one(rank, share):
        return gzarr.Loader(arrays[rank], 8, memory=16_000, shuffle=True, rank=rank, world_size=2, share=share)

    assert make_one(0, "node")._setup.identity() == make_one(1, "node")._setup.identity()
    assert agree_with_those_alone(monkeypatch, make_one)


def test_each_rank_has_the_pad_that_it_asks_for(monkeypatch):
    def make_one(rank, share):
        arrays, crops = some_crops(n=300, pad=rank)
        return gzarr.Loader(arrays, 8, memory=400_000, seed=3, rank=rank, world_size=2, share=share, **crops)

    assert agree_with_those_alone(monkeypatch, make_one)


def test_transform_gets_no_samples_of_a_rank_that_was_expelled(monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 0.2)
    expected = iterate([make("pool", rank, 2, share="none") for rank in range(2)], 1)
    seen, gather = [], SharedFeed.gather

    def slow_gather(self, batch, valid):
        if self._local.me == 1 and len(seen) == 3:
            time.sleep(1.5)
        return gather(self, batch, valid)

    monkeypatch.setattr(SharedFeed, "gather", slow_gather)
    transforms = lambda batch: batch, lambda batch: seen.append(digest(batch)) or batch
    loaders = [make("pool", rank, 2, share="node", memory=100_000, transform=transforms[rank]) for rank in range(2)]
    assert iterate(loaders, 1) == expected
    assert seen == expected[1]


def test_ranks_go_on_while_a_process_that_was_stopped_keeps_their_lock(monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 0.3)
    expected = iterate([make("pool", rank, 2, share="none") for rank in range(2)])
    loaders = [make("pool", rank, 2, share="node") for rank in range(2)]
    iterators = list(map(iter, loaders))
    found = [[digest(next(iterator))] for iterator in iterators]
    with Path(f"/proc/self/fd/{loaders[0]._setup.reused[None].lock}").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for batches, iterator in zip(found, iterators, strict=True):
            batches += [digest(batch) for batch in iterator]
    assert all(loader._setup._alone for loader in loaders)
    assert [one + rest for one, rest in zip(found, iterate(loaders, 1), strict=True)] == expected
    loaders[0]._setup.alone().reused.clear()
    be_patient(monkeypatch)
    iterate(loaders, 1)
    assert not loaders[0]._setup.alone().reused  # they are together again


def test_ranks_are_alone_where_memory_cannot_be_shared(tmp_path, monkeypatch):
    for name, value in {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(node_memory, "FOLDER", tmp_path / "missing")
    assert iterate([make("pool", 0, 2)]) == iterate([make("pool", 0, 2, share="none")])
    with pytest.raises(OSError, match=r"/proc or memory does not allow it .*; mend that, or"):
        next(iter(make("pool", 0, 2, share="node")))


def test_no_process_is_taken_for_dead_where_files_run_out():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            node_memory.started(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def turn_of(tmp_path, monkeypatch, n=2):
    monkeypatch.setattr(node_memory, "FOLDER", tmp_path)
    local = node_memory.LocalRanks(tuple(range(n)), 0, strict=False, asked=True)
    memory = node_memory.NodeMemory(local, "test", {}, 2)
    return node.NodeTurn(memory, 1, Meter(0, 1))


def test_a_rank_that_begins_again_is_seen_at_once(tmp_path, monkeypatch):
    turn, me = turn_of(tmp_path, monkeypatch), os.getpid()
    record = turn.memory.records[1]
    record[:5] = me, node_memory.started(me) + 1, turn.memory.head[0], 0, 1
    assert not turn._is_inside(1)
    record[1] -= 1
    assert turn._is_inside(1)


def test_a_step_that_is_opened_late_hides_no_later_one(tmp_path, monkeypatch):
    turn = turn_of(tmp_path, monkeypatch, 1)
    for step in (1, 0):
        turn.fill(step, 0, int, [int])
    assert turn.memory.head[2] == 2


def lock_and_die(folder):
    """Leave a child behind, forked while the lock is held."""
    node_memory.FOLDER = folder
    memory = node_memory.NodeMemory(node_memory.LocalRanks((0, 1), 1, strict=False, asked=True), "test", {}, 2)
    concurrency._hooks.insert(0, lambda: time.sleep(0.5))  # this process is gone when its child begins
    with memory.locked():
        if (child := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        (folder / "child").write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)


def test_children_of_a_rank_that_was_killed_keep_no_lock(tmp_path, monkeypatch):
    turn = turn_of(tmp_path, monkeypatch)
    process = Rank.context.Process(target=lock_and_die, args=(tmp_path,))
    process.start()
    process.join(60)
    with turn.memory.locked(60):
        pass
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


# -- processes -------------------------------------------------------------------------------------------------------


def run_rank(pipe, path, state, epochs, keywords):
    """A rank in a process of its own: tells about each batch, before which it waits for an order."""
    node_memory.FOLDER = path.parent
    loader = gzarr.Loader(gzarr.open_group(path), 8, **{"shuffle": True, "memory": "50 %", "share": "node"} | keywords)
    if state:
        loader.load_state_dict(state)
    error = ""
    pipe.send("ready")
    try:
        while loader.epoch < epochs:
            for batch in loader:
                pipe.recv()
                pipe.send((digest(batch), loader.state_dict()))
    except RuntimeError as failure:
        error = str(failure)
    loader.close()
    pipe.send(error)


class Rank:
    """A process with a rank, and what it has told."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.loader.test_node"])

    def __init__(self, path, rank, n, *, state=None, epochs=2, **keywords):
        self.pipe, other = self.context.Pipe()
        keywords |= {"rank": rank, "world_size": n}
        self.process = self.context.Process(target=run_rank, args=(other, path, state, epochs, keywords))
        self.process.start()
        other.close()
        self.digests, self.state = [], None
        assert self.pipe.recv() == "ready"

    def order(self, n=1):
        for _ in range(n):
            self.pipe.send(None)

    def next(self):
        digest_of_batch, self.state = self.pipe.recv()
        self.digests.append(digest_of_batch)

    def finish(self):
        """All other batches, once they were ordered. Returns: the error."""
        while True:
            assert self.pipe.poll(120)
            told = self.pipe.recv()
            if isinstance(told, str):
                self.process.join(60)
                return told
            self.digests.append(told[0])


def lists(path):
    return {list_.name for list_ in path.parent.glob("gzarr-loader-*")}


def alone(path, rank, n, epochs=1):
    loader = gzarr.Loader(gzarr.open_group(path), 8, shuffle=True, memory="50 %", rank=rank, world_size=n, share="none")
    return [digest(batch) for _ in range(epochs) for batch in loader]


def test_processes_share_and_leave_nothing(images):
    ranks = [Rank(images, rank, 4) for rank in range(4)]
    for rank in ranks:
        rank.order()
    for rank in ranks:
        rank.next()
        rank.order(200)
    assert len(lists(images)) == 1
    assert [rank.finish() for rank in ranks] == [""] * 4
    assert [rank.digests for rank in ranks] == [alone(images, rank, 4, 2) for rank in range(4)]
    assert lists(images) == set()


@pytest.mark.parametrize("seed", range(2))
def test_a_rank_that_is_killed_leaves_no_wrong_sample(images, seed):
    rng = random.Random(seed)
    ranks = [Rank(images, rank, 3) for rank in range(3)]
    victim, lives = rng.randrange(3), rng.randrange(45)
    for _ in range(lives):
        for rank in ranks:
            rank.order()
        for rank in ranks:
            rank.next()
    for rank in ranks:
        rank.order()
    time.sleep(rng.random() * 0.02)
    ranks[victim].process.kill()
    again = Rank(images, victim, 3, state=ranks[victim].state)  # alone, while the others go on
    for rank in [*ranks, again]:
        if rank is not ranks[victim]:
            rank.order(200)
    assert [rank.finish() for rank in [*ranks, again] if rank is not ranks[victim]] == [""] * 3
    ranks[victim].digests += again.digests
    assert [rank.digests for rank in ranks] == [alone(images, rank, 3, 2) for rank in range(3)]
    assert lists(images) == set()


def test_the_death_of_a_rank_can_be_an_error(images):
    ranks = [Rank(images, rank, 2, share=gzarr.NodePool(on_exit="raise")) for rank in range(2)]
    for rank in ranks:
        rank.order()
        rank.next()
    ranks[1].process.kill()
    ranks[0].order(200)
    assert "rank 1, process" in ranks[0].finish()  # which is not noticed once it was waited for in vain


def test_lists_of_processes_that_were_killed_are_deleted(images):
    ranks = [Rank(images, rank, 2) for rank in range(2)]
    for rank in ranks:
        rank.order()
        rank.next()
    for rank in ranks:
        rank.process.kill()
        rank.process.join()
    assert len(lists(images)) == 1
    other = Rank(images, 0, 1)
    other.order()
    other.next()
    assert len(lists(images)) == 1
    other.order(200)
    assert other.finish() == ""
    assert lists(images) == set()
