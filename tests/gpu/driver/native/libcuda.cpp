// libcuda.so.1, as far as CuPy, KvikIO and gzarr call it.
//
// A kernel is one of gzarr's, built by g++ (driver_kernel names it), or PTX, which Python interprets.
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "device.h"

#undef cuCtxCreate
#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuEventDestroy
#undef cuMemGetAddressRange
#undef cuMemHostRegister
#undef cuMemcpyBatchAsync
#undef cuMemcpyDtoHAsync
#undef cuMemcpyHtoDAsync
#undef cuStreamDestroy

#define CALL \
    if (cudaError_t error = enter(__func__); error != cudaSuccess) return CUresult(error)

extern "C" {
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *, const void *);
cudaError_t cudaHostAlloc(void **, size_t, unsigned);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void *);
}

namespace {

constexpr int MOST_ARGUMENTS = 32;
constexpr unsigned MOST_ROWS = 65535, MOST_THREADS = 1024, MOST_SHARED = 49152;

typedef uint64_t A;
typedef void (*Host)(long long, unsigned, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A,
                     A, A, A, A, A);

struct HostKernel {
    Host function;
    int n_arguments;
};

struct Module {
    std::string image;
    int device;
};

struct Function {
    std::string name;
    const Module *module;
    const HostKernel *host;
    // For PTX: bytes of each argument, and of shared memory.
    std::vector<uint64_t> sizes;
    uint64_t shared = 0;
};

std::map<std::string, HostKernel> &host_kernels = *new std::map<std::string, HostKernel>;

struct Launch {
    unsigned grid[3], block[3], shared;
};

Task host_task(const Function &function, const Launch &launch, void **arguments) {
    std::vector<A> a(MOST_ARGUMENTS);
    for (int i = 0; i < function.host->n_arguments; i++) memcpy(&a[size_t(i)], arguments[i], sizeof(A));
    Host run = function.host->function;
    long long n = (long long)launch.grid[0] * launch.block[0];
    unsigned block = launch.block[0];
    return {"kernel " + function.name, [=] {
                run(n, block, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                    a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27],
                    a[28], a[29], a[30], a[31]);
                return true;
            }, {}};
}

Task ptx_task(const Function &function, const Launch &launch, void **arguments) {
    auto kept = std::make_shared<std::vector<std::string>>();
    for (size_t i = 0; i < function.sizes.size(); i++) {
        kept->emplace_back(static_cast<const char *>(arguments[i]), function.sizes[i]);
    }
    const Function *named = &function;
    return {"kernel " + function.name, [=] {
                std::vector<A> row = {A(named->module->image.c_str()), A(named->name.c_str())};
                for (unsigned n : launch.grid) row.push_back(n);
                for (unsigned n : launch.block) row.push_back(n);
                row.push_back(launch.shared);
                for (auto &bytes : *kept) row.push_back(A(bytes.data()));
                return python("ptx", row.data(), int(row.size())) == 0;
            }, {}, false};
}

CUresult plain(cudaError_t error) { return CUresult(error); }

}  // namespace

extern "C" {

void driver_kernel(const char *name, void *function, int n_arguments) {
    host_kernels[name] = {Host(function), n_arguments};
}

CUresult cuInit(unsigned) { return visible().empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *n) {
    *n = int(visible().size());
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int number) {
    *device = number;
    return number < int(visible().size()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char *text, int size, CUdevice) {
    snprintf(text, size_t(size), "no GPU: a driver made of software");
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    memset(uuid, visible()[size_t(device)] + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice) {
    *size = total_nbytes();
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char **text) {
    *text = "CUDA_ERROR";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **text) {
    *text = "an error of the driver made of software";
    return CUDA_SUCCESS;
}

// -- contexts: each device has its primary one

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = CUcontext(uintptr_t(current_device) + 1);
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    if (context != nullptr) current_device = int(uintptr_t(context) - 1);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    *device = current_device;
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (context != nullptr) cuCtxGetCurrent(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) { return cuCtxSetCurrent(context); }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = CUcontext(uintptr_t(device) + 1);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *context = CUcontext(uintptr_t(device_of(stream)) + 1);
    return CUDA_SUCCESS;
}

// -- modules and launches

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CALL;
    *module = CUmodule(new Module{static_cast<const char *>(image), current_device});
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    CALL;
    auto *module = reinterpret_cast<Module *>(handle);
    auto host = host_kernels.find(name);
    auto *made = new Function{name, module, host == host_kernels.end() ? nullptr : &host->second, {}};
    if (made->host == nullptr) {
        uint64_t sizes[MOST_ARGUMENTS + 2] = {};
        uint64_t row[] = {A(module->image.c_str()), A(name), A(sizes)};
        if (python("parse", row, 3) != 0) return CUDA_ERROR_NOT_FOUND;
        made->sizes.assign(sizes + 2, sizes + 2 + sizes[0]);
        made->shared = sizes[1];
    }
    *out = CUfunction(made);
    return CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, CUmodule, const char *) { return CUDA_ERROR_NOT_FOUND; }
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? int(MOST_THREADS) : 0;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int, size_t) {
    *n = 2;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream_handle, void **arguments, void **) {
    CALL;
    const auto &function = *reinterpret_cast<Function *>(handle);
    Stream *stream = stream_of(stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (gx < 1 || gx > 0x7fffffff || gy < 1 || gy > MOST_ROWS || gz < 1 || gz > MOST_ROWS || bx < 1 || by < 1 ||
        bz < 1 || bz > 64 || uint64_t(bx) * by * bz > MOST_THREADS || shared + function.shared > MOST_SHARED) {
        report("kernel " + function.name + ": a launch that no device takes");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (function.module->device != current_device || device_of(stream) != current_device) {
        report("kernel " + function.name + ": its module or stream is another device's");
        return CUDA_ERROR_INVALID_HANDLE;
    }
    Launch launch = {{gx, gy, gz}, {bx, by, bz}, shared};
    submit(stream, function.host != nullptr ? host_task(function, launch, arguments)
                                            : ptx_task(function, launch, arguments));
    return CUDA_SUCCESS;
}

// -- what KvikIO calls besides

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address) {
    Block block;
    if (!find_block(reinterpret_cast<void *>(address), &block)) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<CUcontext *>(out) = CUcontext(uintptr_t(block.device) + 1); break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *static_cast<unsigned *>(out) = block.kind == Kind::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr *>(out) = address; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int *>(out) = block.device; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **out, CUdeviceptr address) {
    for (unsigned i = 0; i < n; i++) {
        if (cuPointerGetAttribute(out[i], attributes[i], address) != CUDA_SUCCESS) memset(out[i], 0, sizeof(int));
    }
    return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *nbytes, CUdeviceptr address) {
    Block block;
    if (!find_block(reinterpret_cast<void *>(address), &block)) return CUDA_ERROR_INVALID_VALUE;
    if (start != nullptr) *start = block.start;
    if (nbytes != nullptr) *nbytes = block.end - block.start;
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t nbytes, CUstream stream) {
    return plain(cudaMemcpyAsync(reinterpret_cast<void *>(to), from, nbytes, cudaMemcpyHostToDevice, stream));
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t nbytes, CUstream stream) {
    return plain(cudaMemcpyAsync(to, reinterpret_cast<void *>(from), nbytes, cudaMemcpyDeviceToHost, stream));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream) {
    return plain(cudaMemcpyAsync(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), nbytes,
                                 cudaMemcpyDefault, stream));
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *, size_t *,
                               size_t, CUstream stream) {
    for (size_t i = 0; i < n; i++) {
        if (CUresult error = cuMemcpyAsync(to[i], from[i], sizes[i], stream); error != CUDA_SUCCESS) return error;
    }
    return CUDA_SUCCESS;
}
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
                            size_t *numbers, size_t n_attributes, size_t *, CUstream stream) {
    return cuMemcpyBatchAsync_v2(to, from, sizes, n, attributes, numbers, n_attributes, stream);
}
CUresult cuMemHostAlloc(void **address, size_t nbytes, unsigned flags) {
    return plain(cudaHostAlloc(address, nbytes, flags));
}
CUresult cuMemFreeHost(void *address) { return plain(cudaFreeHost(address)); }
CUresult cuMemHostRegister_v2(void *, size_t, unsigned) { return CUDA_SUCCESS; }
CUresult cuMemHostUnregister(void *) { return CUDA_SUCCESS; }
CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return plain(cudaStreamCreateWithFlags(stream, flags)); }
CUresult cuStreamDestroy_v2(CUstream stream) { return plain(cudaStreamDestroy(stream)); }
CUresult cuStreamSynchronize(CUstream stream) { return plain(cudaStreamSynchronize(stream)); }
CUresult cuEventCreate(CUevent *event, unsigned flags) { return plain(cudaEventCreateWithFlags(event, flags)); }
CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent event, CUstream stream) { return plain(cudaEventRecord(event, stream)); }
CUresult cuEventSynchronize(CUevent event) { return plain(cudaEventSynchronize(event)); }
CUresult cuEventQuery(CUevent event) { return plain(cudaEventQuery(event)); }
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    return plain(cudaLaunchHostFunc(stream, function, data));
}
CUresult cuCtxCreate_v2(CUcontext *context, unsigned, CUdevice device) {
    return cuDevicePrimaryCtxRetain(context, device);
}
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *, unsigned, CUdevice device) {
    return cuDevicePrimaryCtxRetain(context, device);
}
CUresult cuCtxDestroy_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuGetExportTable(const void **table, const CUuuid *) {
    if (table != nullptr) *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

// cudaError_t of the runtime functions that Python puts this in the place of.
cudaError_t driver_unsupported() {
    report("a function of the CUDA runtime is called that the driver made of software does not have");
    return cudaErrorNotSupported;
}
}
