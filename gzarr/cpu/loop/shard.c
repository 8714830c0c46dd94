/* Replaces the file of a shard of which some chunks are written: see loop.h.
 *
 * Under the lock of the file the old index is read, and the new shard is put together in scratch memory, where the old
 * chunks are read to their places. It is written in one piece. */
#include "loop.h"

#include <string.h>

enum { ENTRY = 2 * sizeof(uint64_t) };

static int64_t index_size(const IndexFormat *format) { return ENTRY * format->entries + (format->checksum ? CHECKSUM : 0); }

/* Read the index of the old shard, of which none of the entries is missing by half. False if it is damaged. */
static bool read_index(const Reader *reader, const IndexFormat *format, uint64_t *index) {
    const int64_t size = index_size(format), nbytes = ENTRY * format->entries;
    memset(index, 0xff, (size_t)nbytes);
    if (reader->fd < 0) return true;
    if (reader->shard_size < size) return false;
    if (!read_exactly(reader->fd, (char *)index, size, format->at_start ? 0 : reader->shard_size - size)) return false;
    if (format->checksum && lib.crc32c_value((const uint8_t *)index, (size_t)nbytes) != number((char *)index + nbytes))
        return false;
    for (int64_t i = 0; i < format->entries; i++)
        if ((index[2 * i] == MISSING) != (index[2 * i + 1] == MISSING)) return false;
    return true;
}

static bool has_chunks(const Sink *sink, int64_t entries) {
    for (int64_t i = 0; i < entries; i++)
        if (sink->index[2 * i] != MISSING) return true;
    return false;
}

/* Add its index to a shard. Returns: its bytes. */
static int64_t add_index(const Sink *sink, const IndexFormat *format) {
    const int64_t size = index_size(format), nbytes = ENTRY * format->entries;
    if (format->checksum) {
        const uint32_t sum = lib.crc32c_value((const uint8_t *)sink->index, (size_t)nbytes);
        memcpy((char *)sink->index + nbytes, &sum, sizeof sum);
    }
    memcpy(sink->shard + (format->at_start ? 0 : sink->position), sink->index, (size_t)size);
    return sink->position + (format->at_start ? 0 : size);
}

/* The bytes of all that a shard is made of and with, none if they are too many. */
static int64_t room_of_shard(const Call *call, const Sink *sink, const IndexFormat *format, int64_t old_nbytes) {
    const int64_t largest = MAX_SPARE_NBYTES, each = call->job->max_encoded;
    if (old_nbytes > largest || each > largest || format->entries > largest / ENTRY) return 0;
    const int64_t room = old_nbytes + call->n * each + 4 * (index_size(format) + ENTRY) + write_room(call->job, sink->encoder);
    return room > largest ? 0 : room;
}

/* Put the new shard together and store it. */
static int replace_shard(Call *call, Sink *sink, const IndexFormat *format, char *status, char *memory, int64_t room,
                         State *state) {
    const int64_t size = ENTRY * (format->entries + 1), working = write_room(call->job, sink->encoder);
    if (!read_index(&state->reader, format, (uint64_t *)memory)) return LEFT;
    call->index = memory, call->n_index = format->entries, call->sharded = true;
    sink->index = memset(memory + size, 0xff, (size_t)size);
    sink->shard = memory + 2 * size + working;
    sink->capacity = room - 2 * size - working - index_size(format);
    sink->position = format->at_start ? index_size(format) : 0;
    sink->until = format->entries;
    if (write_chunks(call, sink, status, memory + 2 * size, state).left) return LEFT;
    if (!has_chunks(sink, format->entries)) return delete_file(sink, state) ? EMPTY : LEFT;
    return replace_file(sink, sink->shard, add_index(sink, format), NULL, state) ? DONE : LEFT;
}

int write_shard(Call *call, Sink *sink, const IndexFormat *format, char *status) {
    State state = {.reader.fd = -1, .lock.fd = -1};
    int made = LEFT;
    memcpy(state.path, call->path, strlen(call->path) + 1);
    if (!lock_file(sink, &state)) return LEFT;
    state.reader.fd = open_regular(call->path, &state.reader.shard_size);
    const int64_t room = state.reader.fd < -1 ? 0 : room_of_shard(call, sink, format, state.reader.shard_size);
    Scratch *scratch = room ? take_scratch((size_t)room) : NULL;
    if (scratch) {
        made = replace_shard(call, sink, format, status, scratch->bytes, room, &state);
        give_scratch_back(scratch);
    }
    end_lock(&state.lock);
    end_write(&state);
    return made;
}
