// The CUDA runtime, as far as CuPy and gzarr call it. Everything else is refused (tests/gpu/driver/install.py).
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "device.h"

#define CALL                                                          \
    if (cudaError_t error = enter(__func__); error != cudaSuccess) return error
#define CALL_ANYWAY                                                   \
    if (cudaError_t error = enter(__func__, true); error != cudaSuccess) return error

namespace {

Event *event_of(cudaEvent_t handle) { return reinterpret_cast<Event *>(handle); }

cudaError_t free_now(void *address) {
    Block block;
    if (find_block(address, &block)) reach_all(block.device);
    return release(address, Kind::device) ? cudaSuccess : cudaErrorInvalidValue;
}

Pool *const default_pools = new Pool[N_DEVICES]{{0}, {1}};
std::atomic<Pool *> current_pools[N_DEVICES] = {&default_pools[0], &default_pools[1]};

Pool *pool_of(cudaMemPool_t handle) { return reinterpret_cast<Pool *>(handle); }

cudaError_t copied(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind, cudaStream_t handle) {
    Stream *stream = stream_of(handle);
    return copy(to, from, nbytes, kind, stream);
}

}  // namespace

extern "C" {

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
        case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
        case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
        default: return "cudaError";
    }
}
const char *cudaGetErrorString(cudaError_t error) {
    static thread_local char text[64];
    snprintf(text, sizeof text, "error %d of the driver made of software", int(error));
    return text;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

// -- devices

cudaError_t cudaDriverGetVersion(int *version) {
    CALL_ANYWAY;
    *version = CUDA_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    CALL_ANYWAY;
    if (device < 0 || device >= int(visible().size())) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n) {
    CALL_ANYWAY;
    *n = int(visible().size());
    if (*n == 0) return cudaErrorNoDevice;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrMultiProcessorCount: *value = 4; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
        case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
        default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    *properties = {};
    strcpy(properties->name, "no GPU: a driver made of software");
    properties->totalGlobalMem = total_nbytes();
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = 49152;
    properties->regsPerBlock = 65536;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    CALL;
    reach_all(current_device);
    return enter("cudaDeviceSynchronize (end)");
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, size_t(size), "0000:%02d:00.0", device + 1);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit) {
    *value = 0;
    return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// -- memory

cudaError_t cudaMalloc(void **address, size_t nbytes) {
    CALL;
    *address = nbytes == 0 ? nullptr : allocate(nbytes, Kind::device);
    return *address == nullptr && nbytes != 0 ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaMallocManaged(void **address, size_t nbytes, unsigned) { return cudaMalloc(address, nbytes); }
// It waits for the device, which CuPy's pool relies on.
cudaError_t cudaFree(void *address) {
    CALL_ANYWAY;
    if (address == nullptr) return cudaSuccess;
    if (!is_carrying_out()) return free_now(address);
    std::thread(free_now, address).detach();  // a finalizer on a stream's own thread, which cannot wait for itself
    return cudaSuccess;
}
// What a stream frees it may have again as soon as that is done; here nobody has it again.
cudaError_t cudaMallocFromPoolAsync(void **address, size_t nbytes, cudaMemPool_t pool, cudaStream_t handle) {
    CALL;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *address = allocate(nbytes, Kind::device, pool_of(pool));
    if (*address == nullptr) {
        reach_all(current_device);
        *address = allocate(nbytes, Kind::device, pool_of(pool));
    }
    if (*address == nullptr) return cudaErrorMemoryAllocation;
    return fill(*address, FRESH, std::min(nbytes, FILLED), stream);  // work that does not wait for it is spoilt
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    *pool = reinterpret_cast<cudaMemPool_t>(&default_pools[device]);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    *pool = reinterpret_cast<cudaMemPool_t>(current_pools[device].load());
    return cudaSuccess;
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    current_pools[device] = pool_of(pool);
    return cudaSuccess;
}
cudaError_t cudaMallocAsync(void **address, size_t nbytes, cudaStream_t stream) {
    cudaMemPool_t pool;
    cudaDeviceGetMemPool(&pool, current_device);
    return cudaMallocFromPoolAsync(address, nbytes, pool, stream);
}
cudaError_t cudaFreeAsync(void *address, cudaStream_t handle) {
    CALL_ANYWAY;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return address == nullptr || release_later(address, stream) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties) {
    CALL;
    *pool = reinterpret_cast<cudaMemPool_t>(new Pool{properties->location.id});
    return cudaSuccess;
}
// It stays in memory: blocks may name it.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    CALL_ANYWAY;
    pool_of(pool)->kept = 0;
    trim(pool_of(pool), 0);
    return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept) {
    CALL;
    trim(pool_of(pool), kept);
    return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
    CALL;
    if (attribute == cudaMemPoolAttrReleaseThreshold) pool_of(pool)->kept = *static_cast<uint64_t *>(value);
    return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void *value) {
    CALL;
    const Pool *pool = pool_of(handle);
    switch (attribute) {
        case cudaMemPoolAttrReleaseThreshold: *static_cast<uint64_t *>(value) = pool->kept; break;
        case cudaMemPoolAttrReservedMemCurrent: *static_cast<uint64_t *>(value) = pool->reserved; break;
        case cudaMemPoolAttrUsedMemCurrent: *static_cast<uint64_t *>(value) = pool->used; break;
        default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **address, size_t nbytes, unsigned) {
    CALL;
    *address = allocate(nbytes, Kind::pinned);
    return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
// It waits for nothing: CUDA does not promise that it does.
cudaError_t cudaFreeHost(void *address) {
    CALL_ANYWAY;
    return release(address, Kind::pinned) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostRegister(void *address, size_t nbytes, unsigned) {
    CALL;
    return adopt(address, nbytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}
cudaError_t cudaHostUnregister(void *address) {
    CALL_ANYWAY;
    return release(address, Kind::registered) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    CALL;
    *free = free_nbytes();
    *total = total_nbytes();
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *address) {
    CALL;
    *attributes = {};
    Block block;
    if (!find_block(address, &block)) {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = -2;
        return cudaSuccess;
    }
    attributes->type = block.kind == Kind::device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = block.device;
    attributes->devicePointer = const_cast<void *>(address);
    attributes->hostPointer = block.kind == Kind::pinned ? const_cast<void *>(address) : nullptr;
    return cudaSuccess;
}

// -- copies

cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind) {
    CALL;
    Stream *stream = stream_of(nullptr);
    cudaError_t error = copy(to, from, nbytes, kind, stream);
    if (kind != cudaMemcpyDeviceToDevice) reach(last_of(stream));
    return error;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind, cudaStream_t stream) {
    CALL;
    return copied(to, from, nbytes, kind, stream);
}
cudaError_t cudaMemcpyPeer(void *to, int, const void *from, int, size_t nbytes) {
    CALL;
    return copied(to, from, nbytes, cudaMemcpyDeviceToDevice, nullptr);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t nbytes, cudaStream_t stream) {
    CALL;
    return copied(to, from, nbytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemset(void *to, int value, size_t nbytes) {
    CALL;
    return fill(to, value, nbytes, stream_of(nullptr));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t nbytes, cudaStream_t stream) {
    CALL;
    return fill(to, value, nbytes, stream_of(stream));
}

// -- streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    CALL;
    *stream = new_stream(flags);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    CALL;
    *stream = new_stream(flags);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
    CALL;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *flags = flags_of(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int *priority) {
    *priority = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    CALL;
    *id = reinterpret_cast<unsigned long long>(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    CALL_ANYWAY;
    return close_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    CALL;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    reach(last_of(stream));
    return enter("cudaStreamSynchronize (end)");
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    CALL;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return is_reached(last_of(stream)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    CALL;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    // An event that is recorded again counts as it is now.
    Point point = event_of(event)->point;
    if (point.stream != nullptr) submit(stream, {"a wait", [] { return true; }, {point}});
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data) {
    CALL;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    Task task = {"a host function", [=] {
                     function(data);
                     return true;
                 }, {}, false};
    submit(stream, std::move(task));
    return cudaSuccess;
}

// -- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    CALL;
    *event = reinterpret_cast<cudaEvent_t>(new Event{current_device, (flags & cudaEventDisableTiming) == 0, {}});
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t) {
    CALL_ANYWAY;
    return cudaSuccess;  // it stays in memory: queued work may set its time
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
    CALL;
    Stream *stream = stream_of(stream_handle);
    Event *event = event_of(handle);
    if (stream == nullptr || device_of(stream) != event->device) return cudaErrorInvalidResourceHandle;
    if (!event->is_timed) {
        event->point = last_of(stream);
        return cudaSuccess;
    }
    event->point = submit(stream, {"a timed event", [=] {
                                       event->seconds = now();
                                       return true;
                                   }, {}});
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    CALL;
    return is_reached(event_of(event)->point) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    CALL;
    reach(event_of(event)->point);
    return enter("cudaEventSynchronize (end)");
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    CALL;
    Event *first = event_of(start), *second = event_of(end);
    if (!first->is_timed || !second->is_timed || first->point.stream == nullptr || second->point.stream == nullptr) {
        return cudaErrorInvalidResourceHandle;
    }
    if (!is_reached(first->point) || !is_reached(second->point)) return cudaErrorNotReady;
    *milliseconds = float(1e3 * (second->seconds - first->seconds));
    return cudaSuccess;
}
}
