// libcufile.so.0, as far as KvikIO calls it. It reads and writes at once, whatever streams have still to do with the
// memory, and reads zeros from tmpfs, as cuFile does.
#include <linux/magic.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstring>

#include "device.h"

namespace {

struct Error {
    int error = 0, cuda = 0;
};

// CUfileDescr_t.
struct Description {
    int type;
    union {
        int number;
        void *handle;
    };
    const void *functions;
};

struct Properties {
    unsigned major, minor;
};

constexpr int CUFILE_CUDA_ERROR = -5011;
long bytes_read = 0;

char *target_of(void *base, off_t offset, size_t nbytes) {
    Block block;
    char *target = static_cast<char *>(base) + offset;
    return find_block(target, &block) && uintptr_t(target) + nbytes <= block.end ? target : nullptr;
}

}  // namespace

extern "C" {

long driver_cufile_nbytes() { return __atomic_exchange_n(&bytes_read, 0, __ATOMIC_SEQ_CST); }

Error cuFileHandleRegister(void **handle, Description *description) {
    *handle = reinterpret_cast<void *>(intptr_t(description->number) + 1);
    return {enter("cuFileHandleRegister") == cudaSuccess ? 0 : 5001, 0};
}
void cuFileHandleDeregister(void *) {}
ssize_t cuFileRead(void *handle, void *base, size_t nbytes, off_t at, off_t offset) {
    char *target = target_of(base, offset, nbytes);
    if (enter("cuFileRead") != cudaSuccess || target == nullptr) return CUFILE_CUDA_ERROR;
    int file = int(reinterpret_cast<intptr_t>(handle) - 1);
    __atomic_fetch_add(&bytes_read, long(nbytes), __ATOMIC_SEQ_CST);
    struct statfs about;
    if (fstatfs(file, &about) == 0 && about.f_type == TMPFS_MAGIC) {
        memset(target, 0, nbytes);
        return ssize_t(nbytes);
    }
    return pread(file, target, nbytes, at);
}
ssize_t cuFileWrite(void *handle, const void *base, size_t nbytes, off_t at, off_t offset) {
    char *source = target_of(const_cast<void *>(base), offset, nbytes);
    if (enter("cuFileWrite") != cudaSuccess || source == nullptr) return CUFILE_CUDA_ERROR;
    return pwrite(int(reinterpret_cast<intptr_t>(handle) - 1), source, nbytes, at);
}
Error cuFileDriverGetProperties(Properties *properties) {
    *properties = {2, 25};
    return {};
}
Error cuFileGetVersion(int *version) {
    *version = 1150;
    return {};
}
void cuFileBatchIODestroy(void *) {}

#define NOTHING(name) \
    Error name() { return {}; }
NOTHING(cuFileBufRegister)
NOTHING(cuFileBufDeregister)
NOTHING(cuFileDriverOpen)
NOTHING(cuFileDriverClose)
NOTHING(cuFileDriverClose_v2)
NOTHING(cuFileUseCount)
NOTHING(cuFileDriverSetPollMode)
NOTHING(cuFileDriverSetMaxDirectIOSize)
NOTHING(cuFileDriverSetMaxCacheSize)
NOTHING(cuFileDriverSetMaxPinnedMemSize)
NOTHING(cuFileBatchIOSetUp)
NOTHING(cuFileBatchIOSubmit)
NOTHING(cuFileBatchIOGetStatus)
NOTHING(cuFileBatchIOCancel)
NOTHING(cuFileReadAsync)
NOTHING(cuFileWriteAsync)
NOTHING(cuFileStreamRegister)
NOTHING(cuFileStreamDeregister)
}
