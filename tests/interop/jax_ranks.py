"""A process of JAX, of two: ``test_jax.py`` runs both. Arguments: port, rank."""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import gzarr


def main(port: str, rank: int) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    data = np.random.default_rng(0).integers(0, 99, (320, 30)).astype("f4")
    z = gzarr.array(data, chunks=(4, 30))
    loader = gzarr.Loader(z, 32, shuffle=True, memory=30_000, share="node")  # of the rank that JAX tells
    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_rank, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    total = jax.jit(lambda batch: batch.sum(0), out_shardings=everywhere)
    sums = np.zeros(30)
    for batch in loader:
        whole = jax.make_array_from_process_local_data(by_rank, batch)
        assert whole.shape == (64, 30)
        sums += np.asarray(total(whole))
    np.testing.assert_array_equal(sums, data.sum(0))
    print(loader)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
