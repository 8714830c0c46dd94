// nvCOMP's batched functions that need a device. Python puts them in the place of the library's own, and does their work
// on the host when the stream comes to them.
#include <initializer_list>

#include "device.h"

namespace {

struct Options {
    char bytes[64];
};
struct CrcOptions {
    char bytes[128];
};

// nvcompErrorInvalidValue, nvcompErrorCudaError.
constexpr int INVALID = 10, CUDA = 1000;

int queue(const char *what, cudaStream_t handle, std::initializer_list<uint64_t> arguments) {
    if (enter(what) != cudaSuccess) return CUDA;
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return INVALID;
    std::vector<uint64_t> kept = arguments;
    auto run = [=] { return python(what, kept.data(), int(kept.size())) == 0; };
    submit(stream, {what, run, {}, false});
    return 0;
}

uint64_t first_words(const Options &options, int number) {
    return reinterpret_cast<const uint64_t *>(options.bytes)[number];
}

}  // namespace

#define CODEC(name)                                                                                                   \
    int nvcompBatched##name##DecompressAsync(uint64_t in, uint64_t in_sizes, uint64_t capacities, uint64_t sizes,     \
                                             size_t n, uint64_t temp, size_t temp_nbytes, uint64_t out,               \
                                             Options options, uint64_t statuses, cudaStream_t stream) {               \
        return queue("decompress " #name, stream,                                                                     \
                     {in, in_sizes, capacities, sizes, n, temp, temp_nbytes, out, statuses, first_words(options, 0)}); \
    }                                                                                                                 \
    int nvcompBatched##name##CompressAsync(uint64_t in, uint64_t in_sizes, size_t largest, size_t n, uint64_t temp,   \
                                           size_t temp_nbytes, uint64_t out, uint64_t out_sizes, Options options,     \
                                           uint64_t statuses, cudaStream_t stream) {                                  \
        return queue("compress " #name, stream,                                                                       \
                     {in, in_sizes, largest, n, temp, temp_nbytes, out, out_sizes, statuses, first_words(options, 0), \
                      first_words(options, 1)});                                                                      \
    }                                                                                                                 \
    int nvcompBatched##name##CompressGetTempSize(size_t n, size_t largest, Options, size_t *nbytes, size_t all,       \
                                                 cudaStream_t) {                                                      \
        uint64_t row[] = {n, largest, all, uint64_t(nbytes)};                                                         \
        return python("scratch " #name, row, 4);                                                                      \
    }

extern "C" {
CODEC(LZ4)
CODEC(Snappy)
CODEC(Zstd)
CODEC(Deflate)
CODEC(Gdeflate)
CODEC(Gzip)
CODEC(ANS)
CODEC(Bitcomp)
CODEC(Cascaded)

int nvcompBatchedCRC32Async(uint64_t in, uint64_t sizes, size_t n, uint64_t out, CrcOptions options, int,
                            uint64_t statuses, cudaStream_t stream) {
    return queue("crc", stream, {in, sizes, n, out, statuses, *reinterpret_cast<const uint32_t *>(options.bytes)});
}
int nvcompBatchedCRC32GetHeuristicConf(const void *, size_t, void *, size_t, cudaStream_t) { return 0; }
}
