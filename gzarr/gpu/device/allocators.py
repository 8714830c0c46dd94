"""What CuPy's allocator says of its memory: CuPy's own pools, RMM's, PyTorch's, or any other function.

Results and blocks of pipeline slots come from the allocator of the user (``cupy.cuda.set_allocator``). A pool keeps
memory that the driver counts as used; it is free nevertheless, as the pool hands it out again. RMM and PyTorch are
asked only if they are imported already.
"""

import sys
from collections.abc import Callable
from typing import Any


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocator says that there is not enough memory. NumPy and the interpreter have other errors for it."""
    # CuPy's error is a MemoryError, PyTorch's a RuntimeError; RMM's is a MemoryError itself, with a text.
    if type(error) is MemoryError:
        return bool(error.args) and not is_driver_error(error)
    return type(error).__name__ == "OutOfMemoryError"


def is_driver_error(error: Exception) -> bool:
    """Whether RMM or PyTorch passes on another error of the driver, which RMM does as a MemoryError too."""
    return str(error).removeprefix("std::bad_alloc: ").startswith("CUDA error")


def available_nbytes(allocator: Callable[[int], Any], default: Any, free: int, number: int) -> int:
    """Bytes that an allocator can hand out on a device.

    default: CuPy's default pool, which gives back what it keeps to all. free: bytes that the driver has. number: of the
    device.
    """
    free += int(default.free_bytes())
    pool: Any = getattr(allocator, "__self__", None)
    if hasattr(pool, "free_bytes"):
        if pool is not default:
            free += int(pool.free_bytes())
        limit = int(pool.get_limit())
        return min(free, max(limit - int(pool.used_bytes()), 0)) if limit else free
    return _by_rmm(free + _kept_by_torch(number))


def _kept_by_torch(number: int) -> int:
    """Unused bytes of PyTorch's allocator."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.memory_reserved(number) - torch.cuda.memory_allocated(number))


def _by_rmm(free: int) -> int:
    """Bytes that RMM's current resource can hand out. What a pool has counts as unused unless an adaptor counts it."""
    rmm: Any = sys.modules.get("rmm")
    resource = None if rmm is None else rmm.mr.get_current_device_resource()
    used, most = 0, sys.maxsize
    while resource is not None:  # adaptors and pools, each around the next; what one cannot say is 0
        counts = getattr(resource, "allocation_counts", None)
        used = max(used, int(counts.current_bytes if counts else getattr(resource, "get_allocated_bytes", int)()))
        free += max(int(getattr(resource, "pool_size", int)()) - used, 0)
        if hasattr(resource, "get_allocation_limit"):
            most = int(resource.get_allocation_limit()) - used
        resource = getattr(resource, "upstream_mr", None)
    return max(min(free, most), 0)
