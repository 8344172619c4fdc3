// A block's scores and their weights: what attention and the search for keys share.
#pragma once

#include "blocks.h"

#include <cmath>

namespace {

constexpr float HIDDEN = -1e30f;  // below any score; finite, as -inf minus -inf is NaN

// The rows of q that an item's M queries are.
inline void find_queries(const Problem& p, const float* q, const Item& at, const float** rows) {
    const int64_t group = p.heads / p.kv_heads;
    for (int64_t m = 0; m < p.fresh * group; m++)
        rows[m] = q + at.b * p.q_strides[0] + m / group * p.q_strides[1] +
                  (at.head * group + m % group) * p.q_strides[2];
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
