"""CuPy's errors, and the codes that the double gives them."""

from __future__ import annotations

#: cudaErrorInvalidConfiguration, cudaErrorInvalidResourceHandle, cudaErrorNotReady.
INVALID_CONFIGURATION, INVALID_HANDLE, NOT_READY = 9, 400, 600


class CUDARuntimeError(RuntimeError):
    """Like cupy.cuda.runtime.CUDARuntimeError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class CUDADriverError(RuntimeError):
    """Like cupy.cuda.driver.CUDADriverError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA_ERROR {status}")
        self.status = status


class OutOfMemoryError(MemoryError):
    """Like cupy.cuda.memory.OutOfMemoryError."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes)")
