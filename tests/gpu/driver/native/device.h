// The devices of the driver made of software: memory, streams, events, and what went wrong.
//
// Theory of operation. Work is queued on streams. Each stream has a thread, which carries out its work in order, but
// only what is wanted: what somebody waits for, and what chance adds to it. Everything else stays queued, so that work
// is done as late as CUDA allows, and in any order that events and the rules of streams leave open. One mutex guards
// all tables; work itself runs without it.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

constexpr int N_DEVICES = 2;
// What fresh memory has, up to so many bytes of a block.
constexpr int FRESH = 0xA5;
constexpr size_t FILLED = 32 << 20;
// The numbers of the devices that CUDA_VISIBLE_DEVICES leaves, in its order.
const std::vector<int> &visible();

struct Stream;

// All work up to number n of a stream.
struct Point {
    Stream *stream = nullptr;
    uint64_t n = 0;
};

struct Task {
    std::string what;
    std::function<bool()> run;  // false: the device has failed
    std::vector<Point> after;
    bool is_native = true;  // whether an access to unmapped memory can be caught
    const char *engine = nullptr;  // what a slow device does it with (driver.py, slow), and how much of it
    uint64_t nbytes = 0;
};

// A range of host memory that a queued copy reads or writes.
struct Flight {
    uintptr_t low, high;
    bool writes;
};

struct Event {
    int device;
    bool is_timed;
    Point point;
    double seconds = 0;
};

enum class Kind { device, pinned, registered };

// Memory that a pool of CUDA's has from its device, and how much of it is kept when it is unused.
struct Pool {
    int device;
    uint64_t reserved = 0, used = 0, kept = 0;
};

struct Block {
    uintptr_t start, end;
    int device;
    Kind kind;
    Pool *pool = nullptr;
    bool is_leaving = false;  // it is freed when its stream comes so far, and may not be used by what is queued later
};

extern thread_local int current_device;

// Counts a call by its name. Returns: the error that it must give, by injection or as the device has failed before.
cudaError_t enter(const char *call, bool outlives_failure = false);
void report(const std::string &fault);

Stream *stream_of(cudaStream_t handle);  // nullptr for a stream that is gone
cudaStream_t new_stream(unsigned flags);
bool close_stream(cudaStream_t handle);
int device_of(const Stream *stream);
unsigned flags_of(const Stream *stream);
Point submit(Stream *stream, Task task);
Point last_of(Stream *stream);
void reach(Point point);  // nothing, on a stream's own thread: Python's finalizers may come there
bool is_reached(Point point);  // and if not, it is wanted from now on
void reach_all(int device);    // all work of a device
bool is_carrying_out();        // whether this is a stream's own thread

void *allocate(size_t nbytes, Kind kind, Pool *pool = nullptr);  // nullptr if there is not enough
bool release(void *address, Kind kind);
bool release_later(void *address, Stream *stream);
void trim(Pool *pool, uint64_t kept);
// Notes that memory of the host is pinned. Returns: whether it begins at a page, and was not pinned before.
bool adopt(void *address, size_t nbytes);
bool find_block(const void *address, Block *found);
size_t free_nbytes();
size_t total_nbytes();

cudaError_t copy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind, Stream *stream);
cudaError_t fill(void *to, int value, size_t nbytes, Stream *stream);

double now();

// What Python does: kernels of PTX, nvCOMP's batched calls. It returns 0, or the error of the device.
typedef int (*Python)(const char *what, const uint64_t *arguments, int n);
extern Python python;
