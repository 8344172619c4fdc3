// A block's scores and their weights: what attention and the search for keys share.
#pragma once

#include "blocks.h"

#include <cmath>

namespace {

constexpr float HIDDEN = -1e30f;  // below any score; finite, as -inf minus -inf is NaN

// Keys [from, to) -> out [dim, KEYS]. Columns beyond keep what they had; their scores are masked.
template <typename T>
void transpose(const Span<T>& keys, int64_t from, int64_t to, float* out, Ahead soon) {
    const int64_t pace = soon.bytes * LANES / (to - from);
    int64_t k = from;
    for (; k + LANES <= to; k += LANES, soon.next += pace) {
        for (int64_t i = 0; i < pace; i += CACHE_LINE) prefetch(soon.next + i);
        transpose_keys(keys[k], keys.stride, keys.dim, out + k - from, KEYS);
    }
    for (; k < to; k++)
        for (int64_t d = 0; d < keys.dim; d++) out[d * KEYS + k - from] = to_float(keys[k][d]);
}

// The rows of q that an item's M queries are.
inline void find_queries(const Problem& p, const float* q, const Item& at, const float** rows) {
    const int64_t group = p.heads / p.kv_heads;
    for (int64_t m = 0; m < p.fresh * group; m++)
        rows[m] = q + at.b * p.q_strides[0] + m / group * p.q_strides[1] +
                  (at.head * group + m % group) * p.q_strides[2];
}

// Scores [queries, BLOCK] = Q Kᵀ of a block's keys [begin, end). KEYS at a time are transposed (and
// widened) into `tile`, so that a register of scores is eight keys of one query and no horizontal
// sums are needed. `soon` is fetched after the keys.
template <typename T>
void score(const float* const* q_rows, int64_t queries, const Span<T>& keys, int64_t begin,
           int64_t end, float* tile, float* scores, Ahead soon) {
    for (int64_t t = begin / LANES * LANES, stop; t < end; t = stop) {
        stop = group_end(t, KEYS, end);
        Ahead ahead = stop < end ? keys.ahead(stop, group_end(stop, KEYS, end)) : soon;
        const Ahead now = ahead.first(2.0 / static_cast<double>(queries + 2));
        transpose(keys, t, stop, tile, now);
        multiply_rows({q_rows, 0, tile, KEYS, keys.dim, scores + t, BLOCK,
                       round_up(stop - t, LANES), false}, queries, ahead);
    }
}

// Scores [0, end) of a query, of which it sees [low, high), to weights 2^(score * scale - top).
// Returns their sum.
inline float weigh(float* s, int64_t end, int64_t low, int64_t high, float scale, float* top) {
    const int64_t padded = round_up(end, LANES);
    std::fill(s, s + std::min(low, padded), -INFINITY);
    std::fill(s + std::min(high, padded), s + padded, -INFINITY);
    Vec most = broadcast(HIDDEN);
    for (int64_t k = 0; k < padded; k += LANES) most = maximum(load(s + k), most);
    *top = highest(most) * scale;
    const Vec factor = broadcast(scale), offset = broadcast(*top);
    Vec total{};
    for (int64_t k = 0; k < padded; k += LANES) {
        const Vec p = exp2_vec(load(s + k) * factor - offset);
        store(s + k, p);
        total += p;
    }
    return sum(total);
}

}  // namespace
