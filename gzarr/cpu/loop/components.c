/* Labels the connected components of a block, as scipy.ndimage.label numbers them.
 *
 * Rows are cut into runs of voxels. A run takes the label of the runs that it touches in the rows before its own, of
 * which it makes one component, or a new one. Labels are a forest in which none is below its parent, so that one pass in
 * their order numbers the components by their first voxels. Only then are the numbers written. */
#include "loop.h"

#include <stdlib.h>

/* Voxels of a row, [from, until). */
typedef struct {
    int32_t from, until, label;
} Run;

/* What is known of a block. */
typedef struct {
    const Voxels *voxels;
    int64_t *rows; /* first run of each row, and where the last one's end */
    Run *runs;
    int64_t n_runs, room;
    int32_t *parent; /* of each label */
    int64_t *first;  /* voxel of each label */
    int64_t n_labels, label_room;
    int64_t *next; /* of each neighbouring row, its first run that those to come may touch, and the end of its runs */
} Block;

static int32_t root_of(int32_t *parent, int32_t label) {
    while (parent[label] != label) label = parent[label] = parent[parent[label]];
    return label;
}

/* Make one component of two labels, the first of which is a root. Returns the root. */
static int32_t unite(int32_t *parent, int32_t a, int32_t b) {
    b = root_of(parent, b);
    if (a < b) return parent[b] = a;
    return parent[a] = b;
}

/* Make room for one more item. False if there is no memory. */
static bool grow(void **items, size_t size, int64_t n, int64_t *room) {
    if (n < *room) return true;
    const int64_t wanted = *room ? 2 * *room : 1024;
    void *grown = realloc(*items, (size_t)wanted * size);
    if (!grown) return false;
    *items = grown, *room = wanted;
    return true;
}

/* Begin a component. Returns its label, 0 if there is no memory. */
static int32_t new_label(Block *block, int64_t first) {
    int64_t room = block->label_room;
    if (!grow((void **)&block->parent, sizeof *block->parent, block->n_labels, &room)) return 0;
    if (!grow((void **)&block->first, sizeof *block->first, block->n_labels, &block->label_room)) return 0;
    const int32_t label = (int32_t)block->n_labels++;
    block->parent[label] = label, block->first[label] = first;
    return label;
}

/* Find the runs of the rows that a row touches. at: its place on the outer axes. */
static void find_neighbours(const Block *block, const int64_t *at, int64_t row) {
    const Voxels *voxels = block->voxels;
    const int64_t outer = voxels->ndim - 1;
    for (int64_t k = 0; k < voxels->n_neighbours; k++) {
        const int64_t *shift = voxels->neighbours + k * (outer + 2);
        int64_t other = 0;
        bool inside = true;
        for (int64_t a = 0; a < outer; a++) {
            const int64_t there = at[a] + shift[a];
            inside = inside && there >= 0 && there < voxels->shape[a];
            other = other * voxels->shape[a] + there;
        }
        inside = inside && other < row;
        block->next[2 * k] = inside ? block->rows[other] : 0;
        block->next[2 * k + 1] = inside ? block->rows[other + 1] : 0;
    }
}

/* The component of what a run touches in the rows before its own; 0 if that is nothing. */
static int32_t touched(const Block *block, int64_t from, int64_t until) {
    const int64_t outer = block->voxels->ndim - 1;
    int32_t label = 0, last = 0;
    for (int64_t k = 0; k < block->voxels->n_neighbours; k++) {
        const int64_t *ends = block->voxels->neighbours + k * (outer + 2) + outer;
        const int64_t end = block->next[2 * k + 1];
        int64_t run = block->next[2 * k];
        while (run < end && block->runs[run].until <= from + ends[0]) run++;
        block->next[2 * k] = run;
        for (; run < end && block->runs[run].from < until + ends[1]; run++) {
            if (block->runs[run].label == last) continue;
            last = block->runs[run].label;
            label = label ? unite(block->parent, label, last) : root_of(block->parent, last);
        }
    }
    return label;
}

static const uint64_t ones = 0x0101010101010101;

static uint64_t eight_at(const uint8_t *mask) {
    uint64_t eight;
    memcpy(&eight, mask, sizeof eight);
    return eight;
}

/* Label the runs of a row. False if there is no memory. */
static bool label_row(Block *block, int64_t row) {
    const int64_t length = block->voxels->shape[block->voxels->ndim - 1];
    const uint8_t *mask = block->voxels->mask + row * length;
    for (int64_t x = 0; x < length;) {
        const uint64_t eight = x + 8 <= length ? eight_at(mask + x) : mask[x];
        if (!eight) {
            x += x + 8 <= length ? 8 : 1;
            continue;
        }
        x += __builtin_ctzll(eight) / 8;
        int64_t until = x + 1;
        for (;;) {
            if (until + 8 <= length && eight_at(mask + until) == ones)
                until += 8;
            else if (until < length && mask[until])
                until++;
            else
                break;
        }
        int32_t label = touched(block, x, until);
        if (!label && !(label = new_label(block, row * length + x))) return false;
        if (!grow((void **)&block->runs, sizeof *block->runs, block->n_runs, &block->room)) return false;
        block->runs[block->n_runs++] = (Run){(int32_t)x, (int32_t)until, label};
        x = until;
    }
    return true;
}

/* Give components consecutive numbers; `first` is then of each number. Returns how many there are. */
static int64_t number_labels(Block *block) {
    int64_t n = 0;
    for (int64_t label = 1; label < block->n_labels; label++) {
        const int32_t parent = block->parent[label];
        if (parent == label) {
            block->first[++n] = block->first[label];
            block->parent[label] = (int32_t)n;
        } else {
            block->parent[label] = block->parent[parent];
        }
    }
    return n;
}

static void write_numbers(const Block *block, int64_t n_rows) {
    const int64_t length = block->voxels->shape[block->voxels->ndim - 1];
    for (int64_t row = 0; row < n_rows; row++) {
        int32_t *out = block->voxels->out + row * length;
        memset(out, 0, (size_t)length * sizeof *out);
        for (int64_t run = block->rows[row]; run < block->rows[row + 1]; run++) {
            const Run it = block->runs[run];
            const int32_t number = block->parent[it.label];
            for (int64_t x = it.from; x < it.until; x++) out[x] = number;
        }
    }
}

/* Label a block. Returns how many components there are; -1 if there is no memory. firsts: where each begins, from number
 * 1, for the caller to free. */
int64_t label_components(const Voxels *voxels, int64_t **firsts) {
    const int64_t outer = voxels->ndim - 1;
    int64_t at[MAX_NDIM] = {0}, n_rows = 1, n = -1;
    for (int64_t a = 0; a < outer; a++) n_rows *= voxels->shape[a];
    Block block = {.voxels = voxels};
    block.rows = malloc((size_t)(n_rows + 1) * sizeof *block.rows);
    block.next = malloc((size_t)(2 * voxels->n_neighbours + 1) * sizeof *block.next);
    new_label(&block, -1); /* the background, label 0 */
    bool done = block.rows && block.next && block.n_labels;
    for (int64_t row = 0; done && row < n_rows; row++) {
        block.rows[row] = block.n_runs;
        find_neighbours(&block, at, row);
        done = label_row(&block, row);
        for (int64_t a = outer - 1; a >= 0 && ++at[a] == voxels->shape[a]; a--) at[a] = 0;
    }
    if (done) {
        block.rows[n_rows] = block.n_runs;
        n = number_labels(&block);
        write_numbers(&block, n_rows);
    }
    free(block.rows), free(block.next), free(block.runs), free(block.parent);
    *firsts = block.first;
    return n;
}
