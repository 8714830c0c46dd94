/* Checksums that follow encoded chunks: see loop.h. */
#include "loop.h"

/* The checksum of HDF5: two sums of big-endian words. */
static uint32_t fletcher32(const uint8_t *data, size_t n) {
    enum { WORDS = 360 }; /* that may be added before a sum overflows */
    uint32_t one = 0, two = 0;
    for (size_t at = 0; at < n;) {
        for (int i = 0; i < WORDS && at < n; i++, at += 2) {
            one += (uint32_t)data[at] << 8 | (at + 1 < n ? data[at + 1] : 0);
            two += one;
        }
        one = (one & 0xffff) + (one >> 16), two = (two & 0xffff) + (two >> 16);
    }
    one = (one & 0xffff) + (one >> 16), two = (two & 0xffff) + (two >> 16);
    return two << 16 | one;
}

bool has_checksum(const Job *job) {
    return job->checksum == NO_CHECKSUM || job->checksum == FLETCHER32 || (job->checksum == CRC32C && lib.crc32c_value);
}

uint32_t checksum_of(const Job *job, const char *data, int64_t n) {
    return (job->checksum == CRC32C ? lib.crc32c_value : fletcher32)((const uint8_t *)data, (size_t)n);
}
