/* Scratch memory that no call uses: the system clears what it gives anew. What large chunks take is not kept. */
#include "loop.h"

#include <stdlib.h>

enum { MAX_SPARE = 8 };
static Scratch *spare[MAX_SPARE];

Scratch *take_scratch(size_t nbytes) {
    for (int i = 0; i < MAX_SPARE; i++) {
        Scratch *scratch = __atomic_load_n(&spare[i], __ATOMIC_RELAXED);
        if (!scratch || !(scratch = __atomic_exchange_n(&spare[i], NULL, __ATOMIC_ACQUIRE))) continue;
        if (scratch->nbytes >= nbytes) return scratch;
        free(scratch);
        break;
    }
    Scratch *scratch = malloc(sizeof(Scratch) + nbytes);
    if (scratch) scratch->nbytes = nbytes;
    return scratch;
}

void give_scratch_back(Scratch *scratch) {
    for (int i = 0; i < MAX_SPARE && scratch->nbytes <= MAX_SPARE_NBYTES; i++) {
        Scratch *nothing = NULL;
        if (__atomic_compare_exchange_n(&spare[i], &nothing, scratch, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
    free(scratch);
}
