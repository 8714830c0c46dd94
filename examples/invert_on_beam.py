"""Inverts an array on Apache Beam: every region of whole chunks is one element of a collection.

``python examples/invert_on_beam.py in.zarr out.zarr`` needs ``pip install apache-beam`` (2.77 was tried). Paths must
mean the same on all workers; ``--runner`` and its options are those of Beam.
"""

import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

import gzarr


def invert(task: tuple[str, str, int]) -> int:
    """Read, invert and write the region with a number. Returns: its elements."""
    source, out, number = gzarr.open_array(task[0], "r"), gzarr.open_array(task[1], "r+"), task[2]
    region = out.regions(nbytes=64 << 20).at(number)
    block = source[region]
    out.region_writer(region).write(~block)
    return int(block.size)


def main(source: str, out: str, *options: str) -> None:
    """Make the target once, then have its regions written."""
    data = gzarr.open_array(source, "r")
    made = gzarr.create_array(out, shape=data.shape, chunks=data.chunks, dtype=data.dtype)
    tasks = [(source, out, number) for number in range(len(made.regions(nbytes=64 << 20)))]
    with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
        done = pipeline | beam.Create(tasks) | beam.Reshuffle() | beam.Map(invert)
        _ = done | beam.CombineGlobally(sum) | beam.Map(lambda n: print(f"{n} elements"))


if __name__ == "__main__":
    main(*sys.argv[1:])
