// What is asked for, and how it is cut into work items.
#pragma once

#include "product.h"

#include <atomic>

// Mirrored by kernels/native_build.py.
struct Problem {
    int64_t batch, heads, kv_heads, fresh, dim;  // fresh: T
    int64_t window;                              // 0: none
    // [batch, T, tail], when the new tokens are nodes of trees (kernels/attention.py): which of its
    // row's last `tail` keys each sees. Otherwise tail is T and tree null.
    int64_t tail;
    const uint8_t* tree;
    const int64_t *rows, *lengths;               // [batch]
    int64_t q_strides[3];                        // batch, T, head; in elements
    int64_t k_strides[3], v_strides[3];          // cache row, head, key
    int64_t half;                                // caches are bfloat16
    int64_t threads;
    void* workspace;
};

namespace {

constexpr int64_t BLOCK = 256;  // small, so that a few heads keep many threads busy
constexpr int64_t KEYS = 32, VALUES = 64;  // handled at a time; what is made of them stays in L1

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The work, and where each part of the workspace lies.
struct Layout {
    int64_t queries;   // M
    int64_t items;
    int64_t partial;   // floats of an item's result: [M, width], maximum [M], sum [M]
    int64_t scratch;   // floats per thread
    int64_t bytes;

    Layout(const Problem& p, int64_t width)
        : queries(p.fresh * (p.heads / p.kv_heads)), items(0) {
        for (int64_t b = 0; b < p.batch; b++) items += p.kv_heads * blocks(p, b);
        partial = round_up(queries * (width + 2), CACHE_LINE / 4);
        scratch = round_up((KEYS + VALUES) * p.dim + queries * (BLOCK + 4), CACHE_LINE / 4);
        bytes = 4 * (items * partial + p.threads * scratch) +
                p.batch * p.kv_heads * sizeof(std::atomic<int64_t>) + CACHE_LINE;
    }

    // The first key of batch row b that any query sees, and the blocks from there on.
    static int64_t start(const Problem& p, int64_t b) {
        return p.window ? std::max<int64_t>(0, p.lengths[b] - p.tail + 1 - p.window) : 0;
    }
    static int64_t blocks(const Problem& p, int64_t b) {
        return (p.lengths[b] + BLOCK - 1) / BLOCK - start(p, b) / BLOCK;
    }
};

struct Item {
    int64_t b, head, block;  // block counts from the row's first one
    int64_t first, blocks;   // the item of the head's first block, and how many it has

    Item(const Problem& p, int64_t item) : b(0), first(0) {
        while (item - first >= p.kv_heads * (blocks = Layout::blocks(p, b))) {
            first += p.kv_heads * blocks;
            b++;
        }
        head = (item - first) / blocks;
        first += head * blocks;
        block = item - first;
    }

    int64_t base(const Problem& p) const { return (Layout::start(p, b) / BLOCK + block) * BLOCK; }

    // Its keys, counted from `base`.
    int64_t begin(const Problem& p) const {
        return std::max<int64_t>(Layout::start(p, b) - base(p), 0);
    }
    int64_t end(const Problem& p) const { return std::min(p.lengths[b] - base(p), BLOCK); }
};

// One head's keys or values from key `base` on.
template <typename T>
struct Span {
    const T* data;
    int64_t stride, dim;

    Span(const Problem& p, const T* cache, const int64_t* strides, const Item& at)
        : data(cache + p.rows[at.b] * strides[0] + at.head * strides[1] + at.base(p) * strides[2]),
          stride(strides[2]), dim(p.dim) {}

    const T* operator[](int64_t key) const { return data + key * stride; }

    Ahead ahead(int64_t from, int64_t to) const {
        const auto start = reinterpret_cast<const char*>((*this)[from]);
        return {start, stride == dim && to > from ? (to - from) * dim * int64_t{sizeof(T)} : 0};
    }
};

// The end of the group of `unit` that key t lies in, at most `end`.
int64_t group_end(int64_t t, int64_t unit, int64_t end) {
    return std::min(t / unit * unit + unit, end);
}

}  // namespace
