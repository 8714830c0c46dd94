// A stand-in for libcuda.so.1 that lets KvikIO run its reads into "device" memory on a machine without a GPU.
//
// Device memory is ordinary memory that fake_alloc has handed out; copies to it are memcpy, and are counted. Whatever
// KvikIO looks up and does not need for reading succeeds without doing anything. The driver claims to be CUDA 12.4,
// which has no batched copies.
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1 };
enum { ATTRIBUTE_CONTEXT = 1, ATTRIBUTE_MEMORY_TYPE = 2, ATTRIBUTE_DEVICE_POINTER = 3, ATTRIBUTE_ORDINAL = 9 };
enum { MEMORY_DEVICE = 2, MAX_RANGES = 4096, ALIGNMENT = 4096 };

static struct {
    uintptr_t start;
    size_t nbytes;
} ranges[MAX_RANGES];
static atomic_int n_ranges;
static atomic_long copied;

void *fake_alloc(size_t nbytes) {
    void *found = NULL;
    int number = atomic_fetch_add(&n_ranges, 1);
    if (number >= MAX_RANGES || posix_memalign(&found, ALIGNMENT, nbytes + ALIGNMENT) != 0) return NULL;
    ranges[number].start = (uintptr_t)found;
    ranges[number].nbytes = nbytes;
    return found;
}

long fake_copied(void) { return atomic_load(&copied); }

static int range_of(uintptr_t at) {
    for (int i = 0; i < atomic_load(&n_ranges) && i < MAX_RANGES; i++) {
        if (at >= ranges[i].start && at < ranges[i].start + ranges[i].nbytes) return i;
    }
    return -1;
}

int cuPointerGetAttribute(void *out, int attribute, uintptr_t at) {
    if (range_of(at) < 0) return INVALID_VALUE;
    if (attribute == ATTRIBUTE_CONTEXT) *(void **)out = (void *)1;
    else if (attribute == ATTRIBUTE_MEMORY_TYPE) *(unsigned *)out = MEMORY_DEVICE;
    else if (attribute == ATTRIBUTE_DEVICE_POINTER) *(uintptr_t *)out = at;
    else if (attribute == ATTRIBUTE_ORDINAL) *(int *)out = 0;
    else return INVALID_VALUE;
    return SUCCESS;
}

int cuPointerGetAttributes(unsigned n, const int *attributes, void **out, uintptr_t at) {
    for (unsigned i = 0; i < n; i++) {
        if (cuPointerGetAttribute(out[i], attributes[i], at) != SUCCESS) memset(out[i], 0, sizeof(int));
    }
    return SUCCESS;
}

int cuMemGetAddressRange_v2(uintptr_t *start, size_t *nbytes, uintptr_t at) {
    int number = range_of(at);
    if (number < 0) return INVALID_VALUE;
    if (start) *start = ranges[number].start;
    if (nbytes) *nbytes = ranges[number].nbytes;
    return SUCCESS;
}

static int copy(void *to, const void *from, size_t nbytes) {
    atomic_fetch_add(&copied, (long)nbytes);
    memcpy(to, from, nbytes);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t n, void *stream) { return copy((void *)to, from, n); }
int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t n, void *stream) { return copy(to, (void *)from, n); }
int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t n, void *stream) { return copy((void *)to, (void *)from, n); }

int cuMemHostAlloc(void **out, size_t nbytes, unsigned flags) {
    return posix_memalign(out, ALIGNMENT, nbytes) == 0 ? SUCCESS : INVALID_VALUE;
}
int cuMemFreeHost(void *memory) {
    free(memory);
    return SUCCESS;
}

static int put_one(void **out) {
    *out = (void *)1;
    return SUCCESS;
}
int cuCtxCreate_v2(void **out, unsigned flags, int device) { return put_one(out); }
int cuCtxCreate_v4(void **out, void *params, unsigned flags, int device) { return put_one(out); }
int cuCtxGetCurrent(void **out) { return put_one(out); }
int cuCtxPopCurrent_v2(void **out) { return out ? put_one(out) : SUCCESS; }
int cuDevicePrimaryCtxRetain(void **out, int device) { return put_one(out); }
int cuStreamCreate(void **out, unsigned flags) { return put_one(out); }
int cuEventCreate(void **out, unsigned flags) { return put_one(out); }

static int put(int *out, int value) {
    *out = value;
    return SUCCESS;
}
int cuDriverGetVersion(int *out) { return put(out, 12040); }
int cuDeviceGetCount(int *out) { return put(out, 1); }
int cuDeviceGet(int *out, int number) { return put(out, number); }
int cuCtxGetDevice(int *out) { return put(out, 0); }
int cuDeviceGetAttribute(int *out, int attribute, int device) { return put(out, 0); }

static int put_text(const char **out) {
    *out = "an error of the stand-in for CUDA";
    return SUCCESS;
}
int cuGetErrorName(int error, const char **out) { return put_text(out); }
int cuGetErrorString(int error, const char **out) { return put_text(out); }

#define NOTHING(name) \
    int name(void) { return SUCCESS; }
NOTHING(cuInit)
NOTHING(cuMemHostRegister_v2)
NOTHING(cuMemHostUnregister)
NOTHING(cuCtxDestroy_v2)
NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuEventSynchronize)
NOTHING(cuEventDestroy_v2)
NOTHING(cuEventRecord)
NOTHING(cuEventQuery)
NOTHING(cuLaunchHostFunc)
