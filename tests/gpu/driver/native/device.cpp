#include "device.h"

#include <signal.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

// Devices have numbers and UUIDs of one byte, 16 times. As the real driver, this stops at what it does not know.
const std::vector<int> &visible() {
    static const std::vector<int> found = [] {
        const char *text = getenv("CUDA_VISIBLE_DEVICES");
        std::vector<int> numbers;
        std::stringstream names(text == nullptr ? "0,1" : text);
        for (std::string name; std::getline(names, name, ',');) {
            int number = 0;
            for (; number < N_DEVICES; number++) {
                const std::string byte = "0" + std::to_string(number + 1), uuid = byte + byte + byte + byte + "-";
                if (name == std::to_string(number)) break;
                if (name.size() > 5 && ("GPU-" + uuid).rfind(name, 0) == 0) break;
                if (name.size() > 5 && ("MIG-" + uuid).rfind(name, 0) == 0) break;
            }
            if (number == N_DEVICES) break;
            numbers.push_back(number);
        }
        return numbers;
    }();
    return found;
}

namespace {

constexpr size_t PAGE = 4096, ALIGNMENT = 256, KEPT = 512;
constexpr int FREED = 0xEE;

// Never destroyed: threads use them until the process ends.
std::mutex &mutex = *new std::mutex;
std::condition_variable &changed = *new std::condition_variable;
using Lock = std::unique_lock<std::mutex>;

struct Injection {
    long after;
    int error;
    bool lasts;  // the device gives the error ever after
};

std::map<std::string, long> &calls = *new std::map<std::string, long>;
std::map<std::string, Injection> &injections = *new std::map<std::string, Injection>;
std::string &faults = *new std::string;
cudaError_t failed = cudaSuccess;

std::map<uintptr_t, Block> &blocks = *new std::map<uintptr_t, Block>;
std::map<uintptr_t, std::pair<void *, size_t>> &mappings = *new std::map<uintptr_t, std::pair<void *, size_t>>;
std::deque<std::pair<void *, size_t>> &graveyard = *new std::deque<std::pair<void *, size_t>>;
std::list<Flight> &flights = *new std::list<Flight>;
size_t total = size_t(2) << 30;
size_t live[2], peak[2];

bool has_chance = true, is_eager = false, is_slow = false;
std::mt19937_64 &chance = *new std::mt19937_64(0);

void add_fault(const std::string &fault) {
    if (faults.size() < 20000) faults += fault + "\n";
}

}  // namespace

struct Stream {
    Stream(int device, unsigned flags) : device(device), flags(flags) {}
    int device;
    unsigned flags;
    uint64_t submitted = 0, wanted = 0, done = 0;
    std::deque<Task> tasks;
    std::condition_variable turn;
    bool has_thread = false, is_closed = false;
};

namespace {

// Those that are open, and those that were destroyed while they had work, which is done all the same.
std::set<Stream *> &streams = *new std::set<Stream *>, &closing = *new std::set<Stream *>;
Stream *legacy[N_DEVICES];
thread_local Stream *of_thread[N_DEVICES];

Stream *make_stream(unsigned flags) {
    auto *made = new Stream(current_device, flags);
    streams.insert(made);
    return made;
}

thread_local bool is_worker = false;
thread_local sigjmp_buf *landing = nullptr;
thread_local void *touched = nullptr;
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL};
struct sigaction before[65];

void on_fault(int number, siginfo_t *info, void *context) {
    if (landing != nullptr) {
        touched = number == SIGILL ? nullptr : info->si_addr;
        siglongjmp(*landing, 1);
    }
    struct sigaction &old = before[number];
    if ((old.sa_flags & SA_SIGINFO) != 0) old.sa_sigaction(number, info, context);
    else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) old.sa_handler(number);
    else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

// Without the lock. Returns: whether the device still works.
bool carry_out(Task &task) {
    if (is_slow && task.engine != nullptr) python(task.engine, &task.nbytes, 1);
    if (!task.is_native) return task.run();
    sigjmp_buf here;
    if (sigsetjmp(here, 1) != 0) {
        landing = nullptr;
        char text[64];
        snprintf(text, sizeof text, " touches unmapped memory at %p", touched);
        report(task.what + (touched != nullptr ? text : " makes an access that is not aligned"));
        return false;
    }
    landing = &here;
    bool works = task.run();
    landing = nullptr;
    return works;
}

void work(Stream *stream);

void want(Point point) {
    Stream &stream = *point.stream;
    if (stream.wanted >= point.n) return;
    stream.wanted = point.n;
    if (!stream.has_thread) {
        stream.has_thread = true;
        std::thread(work, point.stream).detach();
    }
    stream.turn.notify_one();
}

void reach(Point point, Lock &lock) {
    want(point);
    changed.wait(lock, [&] { return point.stream->done >= point.n; });
}

void work(Stream *stream) {
    is_worker = true;
    Lock lock(mutex);
    for (;;) {
        stream->turn.wait(lock, [&] { return stream->done < stream->wanted || stream->is_closed; });
        if (stream->tasks.empty()) break;
        Task task = std::move(stream->tasks.front());
        stream->tasks.pop_front();
        for (Point point : task.after) reach(point, lock);
        if (failed == cudaSuccess) {
            lock.unlock();
            bool works = carry_out(task);
            task = Task();
            lock.lock();
            if (!works && failed == cudaSuccess) failed = cudaErrorIllegalAddress;
        }
        stream->done++;
        changed.notify_all();
    }
    stream->has_thread = false;
    closing.erase(stream);
}

std::vector<Stream *> working() {
    std::vector<Stream *> found(streams.begin(), streams.end());
    found.insert(found.end(), closing.begin(), closing.end());
    return found;
}

// Let chance add to what is wanted: all that is queued on a stream, or a part.
void perhaps_want(Stream *stream) {
    if (is_eager) return want({stream, stream->submitted});
    if (!has_chance || stream->wanted >= stream->submitted) return;
    uint64_t queued = stream->submitted - stream->wanted;
    switch (chance() % 4) {
        case 0: want({stream, stream->submitted}); break;
        case 1: want({stream, stream->wanted + chance() % (queued + 1)}); break;
        default: break;
    }
}

bool is_blocking(const Stream *stream) { return (stream->flags & cudaStreamNonBlocking) == 0; }

// The rules of the legacy default stream: it waits for all blocking streams, and they wait for it.
void add_default_order(Stream *stream, std::vector<Point> &after) {
    Stream *common = legacy[stream->device];
    if (stream != common) {
        if (is_blocking(stream) && common != nullptr) after.push_back({common, common->submitted});
        return;
    }
    for (Stream *other : working()) {
        if (other != stream && other->device == stream->device && is_blocking(other)) {
            after.push_back({other, other->submitted});
        }
    }
}

size_t rounded(size_t nbytes, size_t to) { return (nbytes + to - 1) / to * to; }

const Block *block_at(uintptr_t address) {
    auto next = blocks.upper_bound(address);
    if (next == blocks.begin()) return nullptr;
    const Block &block = std::prev(next)->second;
    return address < block.end ? &block : nullptr;
}

bool is_inside(uintptr_t address, size_t nbytes, Kind kind) {
    const Block *block = block_at(address);
    return block != nullptr && block->kind == kind && !block->is_leaving && nbytes <= block->end - address;
}

// Take device memory into account, by way of a pool if there is one. Returns: whether there is enough.
bool take(size_t nbytes, Pool *pool) {
    size_t more = nbytes;
    if (pool != nullptr) more = size_t(std::max(pool->used + nbytes, pool->reserved) - pool->reserved);
    if (more > 0 && live[0] + more > total) {
        calls["cudaErrorMemoryAllocation"]++;
        return false;
    }
    live[0] += more;
    if (pool != nullptr) {
        pool->reserved += more;
        pool->used += nbytes;
    }
    return true;
}

void shrink(Pool *pool, uint64_t kept) {
    uint64_t left = std::min(pool->reserved, std::max(pool->used, kept));
    live[0] -= size_t(pool->reserved - left);
    pool->reserved = left;
}

void give_back(size_t nbytes, Pool *pool) {
    if (pool == nullptr) {
        live[0] -= nbytes;
        return;
    }
    pool->used -= nbytes;
    shrink(pool, pool->kept);
}

bool overlaps(const Flight &flight, uintptr_t low, uintptr_t high) { return flight.low < high && low < flight.high; }

uint64_t hash_of(const void *data, size_t nbytes) {
    uint64_t hash = nbytes;
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < nbytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, std::min<size_t>(8, nbytes - i));
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return hash;
}

}  // namespace

thread_local int current_device = 0;
Python python = nullptr;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaError_t enter(const char *call, bool outlives_failure) {
    Lock lock(mutex);
    calls[call]++;
    auto found = injections.find(call);
    if (found != injections.end() && found->second.after-- == 0) {
        auto error = cudaError_t(found->second.error);
        if (found->second.lasts) failed = error;
        injections.erase(found);
        return error;
    }
    return outlives_failure ? cudaSuccess : failed;
}

void report(const std::string &fault) {
    Lock lock(mutex);
    add_fault(fault);
}

// -- streams

Stream *stream_of(cudaStream_t handle) {
    Lock lock(mutex);
    if (handle == nullptr || handle == cudaStreamLegacy) {
        Stream *&common = legacy[current_device];
        if (common == nullptr) common = make_stream(0);
        return common;
    }
    if (handle == cudaStreamPerThread) {
        Stream *&own = of_thread[current_device];
        if (own == nullptr) own = make_stream(0);
        return own;
    }
    auto *stream = reinterpret_cast<Stream *>(handle);
    if (streams.count(stream) == 0) {
        add_fault("a stream is used that was destroyed, or never made");
        return nullptr;
    }
    return stream;
}

cudaStream_t new_stream(unsigned flags) {
    Lock lock(mutex);
    return reinterpret_cast<cudaStream_t>(make_stream(flags));
}

bool close_stream(cudaStream_t handle) {
    Lock lock(mutex);
    auto *stream = reinterpret_cast<Stream *>(handle);
    if (streams.erase(stream) == 0) {
        add_fault("a stream is destroyed twice");
        return false;
    }
    if (stream->done < stream->submitted) closing.insert(stream);
    want({stream, stream->submitted});
    stream->is_closed = true;  // it stays in memory: events may name it
    stream->turn.notify_one();
    return true;
}

int device_of(const Stream *stream) { return stream->device; }
unsigned flags_of(const Stream *stream) { return stream->flags; }

Point submit(Stream *stream, Task task) {
    Lock lock(mutex);
    add_default_order(stream, task.after);
    stream->tasks.push_back(std::move(task));
    stream->submitted++;
    perhaps_want(stream);
    return {stream, stream->submitted};
}

Point last_of(Stream *stream) {
    Lock lock(mutex);
    return {stream, stream->submitted};
}

extern "C" {
int PyGILState_Check();
void *PyEval_SaveThread();
void PyEval_RestoreThread(void *);
}

// Lets go of Python's lock, which finalizers may hold that wait for work of Python's.
struct WithoutPython {
    void *state = PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
    ~WithoutPython() {
        if (state != nullptr) PyEval_RestoreThread(state);
    }
};

bool is_carrying_out() { return is_worker; }

void reach(Point point) {
    if (point.stream == nullptr || is_worker) return;
    WithoutPython without;
    Lock lock(mutex);
    for (Stream *other : streams) {
        if (other != point.stream) perhaps_want(other);
    }
    reach(point, lock);
}

bool is_reached(Point point) {
    if (point.stream == nullptr) return true;
    Lock lock(mutex);
    bool reached = point.stream->done >= point.n;
    want(point);
    return reached;
}

void reach_all(int device) {
    if (is_worker) return;
    WithoutPython without;
    Lock lock(mutex);
    std::vector<Point> points;
    for (Stream *stream : working()) {
        if (stream->device == device) points.push_back({stream, stream->submitted});
    }
    for (Point point : points) want(point);
    for (Point point : points) reach(point, lock);
}

// -- memory

void *allocate(size_t nbytes, Kind kind, Pool *pool) {
    Lock lock(mutex);
    int row = int(kind);
    if (kind == Kind::pinned) live[row] += nbytes;
    else if (!take(nbytes, pool)) return nullptr;
    // The last page cannot be accessed, and the block ends before it.
    size_t used = rounded(std::max<size_t>(nbytes, 1), ALIGNMENT), size = rounded(used, PAGE) + PAGE;
    void *base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    mprotect(static_cast<char *>(base) + size - PAGE, PAGE, PROT_NONE);
    uintptr_t start = uintptr_t(base) + size - PAGE - used;
    memset(reinterpret_cast<void *>(start), FRESH, std::min(nbytes, FILLED));
    blocks[start] = {start, start + nbytes, pool == nullptr ? current_device : pool->device, kind, pool};
    mappings[start] = {base, size};
    peak[row] = std::max(peak[row], live[row]);
    return reinterpret_cast<void *>(start);
}

bool adopt(void *address, size_t nbytes) {
    Lock lock(mutex);
    uintptr_t start = uintptr_t(address);
    if (start % PAGE != 0 || block_at(start) != nullptr) return false;
    blocks[start] = {start, start + nbytes, current_device, Kind::registered, nullptr};
    return true;
}

bool release(void *address, Kind kind) {
    Lock lock(mutex);
    auto found = blocks.find(uintptr_t(address));
    if (found == blocks.end() || found->second.kind != kind) {
        add_fault("memory is freed that is not allocated");
        return false;
    }
    Block block = found->second;
    for (const Flight &flight : flights) {
        if (overlaps(flight, block.start, block.end)) {
            add_fault("pinned memory is freed before a queued copy has used it");
            break;
        }
    }
    if (kind == Kind::registered) {
        blocks.erase(found);
        return true;
    }
    if (kind == Kind::pinned) live[int(kind)] -= block.end - block.start;
    else give_back(block.end - block.start, block.pool);
    auto [base, size] = mappings[block.start];
    blocks.erase(found);
    mappings.erase(block.start);
    memset(address, FREED, std::min(block.end - block.start, FILLED));
    mprotect(base, size, PROT_NONE);
    madvise(base, size, MADV_DONTNEED);
    graveyard.emplace_back(base, size);  // the addresses are not given out again for a while
    if (graveyard.size() > KEPT) {
        munmap(graveyard.front().first, graveyard.front().second);
        graveyard.pop_front();
    }
    return true;
}

bool release_later(void *address, Stream *stream) {
    {
        Lock lock(mutex);
        auto found = blocks.find(uintptr_t(address));
        if (found == blocks.end() || found->second.kind != Kind::device || found->second.is_leaving) {
            add_fault("memory is freed that is not allocated");
            return false;
        }
        found->second.is_leaving = true;
    }
    submit(stream, {"a free", [=] { return release(address, Kind::device); }, {}});
    return true;
}

void trim(Pool *pool, uint64_t kept) {
    Lock lock(mutex);
    shrink(pool, kept);
}

bool find_block(const void *address, Block *found) {
    Lock lock(mutex);
    const Block *block = block_at(uintptr_t(address));
    if (block != nullptr) *found = *block;
    return block != nullptr;
}

size_t total_nbytes() { return total; }

size_t free_nbytes() {
    Lock lock(mutex);
    return (total - std::min(total, live[0])) / 2;  // other processes have the other half
}

cudaError_t copy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind, Stream *stream) {
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (nbytes == 0) return cudaSuccess;
    auto target = uintptr_t(to), source = uintptr_t(from);
    Lock lock(mutex);
    const Block *first = block_at(source), *second = block_at(target);
    bool source_there = first != nullptr && first->kind == Kind::device;
    bool target_there = second != nullptr && second->kind == Kind::device;
    if (kind == cudaMemcpyDefault) {
        kind = source_there ? target_there ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost
               : target_there ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
    }
    bool reads_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool writes_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    if ((reads_device && !is_inside(source, nbytes, Kind::device)) ||
        (writes_device && !is_inside(target, nbytes, Kind::device))) {
        add_fault("a copy reaches beyond an allocation of device memory");
        return cudaErrorInvalidValue;
    }
    Task task;
    task.what = "a copy";
    task.engine = kind == cudaMemcpyHostToDevice ? "up" : kind == cudaMemcpyDeviceToHost ? "down" : nullptr;
    task.nbytes = nbytes;
    bool waits = false;
    if (kind == cudaMemcpyHostToDevice) {
        Flight flight = {source, source + nbytes, false};
        bool settled = std::none_of(flights.begin(), flights.end(), [&](const Flight &other) {
            return other.writes && overlaps(other, flight.low, flight.high);
        });
        uint64_t hash = settled ? hash_of(from, nbytes) : 0;
        auto place = flights.insert(flights.end(), flight);
        task.run = [=] {
            // Memory that is gone by then must not end the process.
            iovec here = {to, nbytes}, there = {const_cast<void *>(from), nbytes};
            bool same = process_vm_readv(getpid(), &here, 1, &there, 1, 0) == ssize_t(nbytes) &&
                        (!settled || hash_of(to, nbytes) == hash);
            Lock again(mutex);
            flights.erase(place);
            if (!same) add_fault("host memory is freed or changed before a queued copy to the device has read it");
            return true;
        };
    } else if (kind == cudaMemcpyDeviceToHost) {
        waits = !is_inside(target, nbytes, Kind::pinned);
        auto place = flights.insert(flights.end(), {target, target + nbytes, true});
        task.run = [=] {
            memcpy(to, from, nbytes);
            Lock again(mutex);
            flights.erase(place);
            return true;
        };
    } else {
        task.run = [=] {
            memmove(to, from, nbytes);
            return true;
        };
    }
    lock.unlock();
    Point point = submit(stream, std::move(task));
    if (waits) reach(point);
    return cudaSuccess;
}

cudaError_t fill(void *to, int value, size_t nbytes, Stream *stream) {
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (nbytes == 0) return cudaSuccess;
    {
        Lock lock(mutex);
        if (!is_inside(uintptr_t(to), nbytes, Kind::device)) {
            add_fault("memory beyond an allocation is set");
            return cudaErrorInvalidValue;
        }
    }
    submit(stream, {"a memset", [=] {
                        memset(to, value, nbytes);
                        return true;
                    }, {}});
    return cudaSuccess;
}

// -- for the tests

extern "C" {

void driver_start(Python callback) { python = callback; }

// Handle signals before whoever handles them now, such as Python's faulthandler.
void driver_handle_signals() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    for (int number : SIGNALS) {
        struct sigaction now;
        sigaction(number, &action, &now);
        if (now.sa_sigaction != on_fault) before[number] = now;
    }
}

// Work is done in another order for each seed; without chance, only what is waited for.
void driver_schedule(long seed, int by_chance) {
    Lock lock(mutex);
    has_chance = by_chance != 0;
    chance.seed(uint64_t(seed));
}

// A device that takes its time, and begins with all work as soon as it can.
void driver_slow(int slow) {
    Lock lock(mutex);
    is_eager = is_slow = slow != 0;
}

void driver_inject(const char *call, long after, int error, int lasts) {
    Lock lock(mutex);
    injections[call] = {after, error, lasts != 0};
}

long driver_injections() {
    Lock lock(mutex);
    long left = long(injections.size());
    injections.clear();
    return left;
}

long driver_calls(const char *call) {
    Lock lock(mutex);
    return calls[call];
}

// The names of all calls that were made.
size_t driver_called(char *out, size_t size) {
    Lock lock(mutex);
    std::string names;
    for (auto &[name, n] : calls) names += name + "\n";
    strncpy(out, names.c_str(), size);
    return names.size();
}

void driver_report(const char *fault) { report(fault); }

// What went wrong since the last call. The device works again.
size_t driver_faults(char *out, size_t size) {
    Lock lock(mutex);
    strncpy(out, faults.c_str(), size);
    size_t n = faults.size();
    faults.clear();
    if (failed != cudaSuccess) flights.clear();  // of work that was not done
    failed = cudaSuccess;
    return n;
}

void driver_memory(size_t nbytes) {
    Lock lock(mutex);
    total = nbytes;
}

size_t driver_live(int kind) {
    Lock lock(mutex);
    return live[kind];
}

size_t driver_peak(int kind) {
    Lock lock(mutex);
    return std::exchange(peak[kind], live[kind]);
}

// First and last addresses of all blocks, sorted. Returns: how many there are.
size_t driver_blocks(int64_t *out, size_t most) {
    Lock lock(mutex);
    size_t n = 0;
    for (auto &[start, block] : blocks) {
        if (n >= most) break;
        out[2 * n] = int64_t(block.start);
        out[2 * n + 1] = int64_t(block.end);
        n++;
    }
    return blocks.size();
}

void driver_drain() {
    for (int device = 0; device < N_DEVICES; device++) reach_all(device);
}
}
