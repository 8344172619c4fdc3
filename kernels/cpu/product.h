// The one kernel that both products of attention, Q Kᵀ and P V, are made of.
#pragma once

#include "vectors.h"

namespace {

constexpr int64_t CACHE_LINE = 64;
constexpr int MAX_ROWS = 6;  // by 16 columns: 12 sums, 2 of b and 1 of a fill 16 registers

// Memory that is needed next, fetched a little at every step of the work before it, so that
// reading and arithmetic overlap: hardware prefetchers lose a stream that pauses or crosses a
// page, and too many requests at once are dropped.
struct Ahead {
    const char* next;
    int64_t bytes;

    // The part of it that is to be fetched first.
    Ahead first(double share) {
        const Ahead part{next, static_cast<int64_t>(share * static_cast<double>(bytes))};
        next += part.bytes;
        bytes -= part.bytes;
        return part;
    }
};

inline void prefetch(const char* p) { __builtin_prefetch(p, 0, 2); }  // into L2

// out[m][j] (+)= Σ a[m][i] * b[i][j] over i < count, for j < width.
struct Product {
    const float* const* a;  // rows
    int64_t a_offset;       // a[m][a_offset] is the first number
    const float* b;
    int64_t b_stride, count;
    float* out;
    int64_t out_stride, width;
    bool add;

    const char* ahead = nullptr;  // and bytes of it for each of the steps of `multiply`
    int64_t pace = 0;
};

// Rows [first, first + MR), columns [column, column + 8 NV).
template <int MR, int NV>
inline void multiply(Product& p, int64_t first, int64_t column) {
    float* out = p.out + first * p.out_stride + column;
    const float* a[MR];
    Vec sums[MR][NV];
    for (int m = 0; m < MR; m++) {
        a[m] = p.a[first + m] + p.a_offset;
        for (int j = 0; j < NV; j++)
            sums[m][j] = p.add ? load(out + m * p.out_stride + j * LANES) : Vec{};
    }
    const float* b = p.b + column;
    const char* ahead = p.ahead;
    const int64_t count = p.count, stride = p.b_stride, pace = p.pace;
    for (int64_t i = 0; i < count; i++, b += stride, ahead += pace) {
        prefetch(ahead);
        if (NV == 4) prefetch(ahead + CACHE_LINE);
        // The fewer of the two stay in registers beside the sums, the others pass through one.
        if constexpr (NV <= MR) {
            Vec held[NV];
            for (int j = 0; j < NV; j++) held[j] = in_register(load(b + j * LANES));
            for (int m = 0; m < MR; m++) {
                const Vec x = in_register(broadcast(a[m][i]));
                for (int j = 0; j < NV; j++) sums[m][j] += x * held[j];
            }
        } else {
            Vec held[MR];
            for (int m = 0; m < MR; m++) held[m] = in_register(broadcast(a[m][i]));
            for (int j = 0; j < NV; j++) {
                const Vec x = in_register(load(b + j * LANES));
                for (int m = 0; m < MR; m++) sums[m][j] += held[m] * x;
            }
        }
    }
    p.ahead = ahead;
    for (int m = 0; m < MR; m++)
        for (int j = 0; j < NV; j++) store(out + m * p.out_stride + j * LANES, sums[m][j]);
}

// Rows [first, first + MR), all columns, as many at once as the rows leave registers for.
template <int MR>
void multiply_columns(Product& p, int64_t first) {
    constexpr int NV = MR <= 3 ? 4 : 2;
    int64_t c = 0;
    for (; c + NV * LANES <= p.width; c += NV * LANES) multiply<MR, NV>(p, first, c);
    if constexpr (NV == 4)
        for (; c + 2 * LANES <= p.width; c += 2 * LANES) multiply<MR, 2>(p, first, c);
    for (; c < p.width; c += LANES) multiply<MR, 1>(p, first, c);
}

// All rows; `soon` is fetched meanwhile. width is a multiple of LANES.
inline void multiply_rows(Product p, int64_t rows, Ahead soon) {
    const int64_t groups = (rows + MAX_ROWS - 1) / MAX_ROWS;
    const int64_t columns = rows <= 3 ? 4 * LANES : 2 * LANES;
    p.ahead = soon.bytes ? soon.next : reinterpret_cast<const char*>(p.b);
    p.pace = soon.bytes / (groups * ((p.width + columns - 1) / columns) * p.count);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = g * rows / groups;
        switch ((g + 1) * rows / groups - first) {
            case 1: multiply_columns<1>(p, first); break;
            case 2: multiply_columns<2>(p, first); break;
            case 3: multiply_columns<3>(p, first); break;
            case 4: multiply_columns<4>(p, first); break;
            case 5: multiply_columns<5>(p, first); break;
            default: multiply_columns<6>(p, first);
        }
    }
}

}  // namespace
