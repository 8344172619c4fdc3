// The small operations between the products of a layer. At decode's sizes each takes a
// microsecond, while a framework's operator costs several to launch, and each of these replaces
// three to ten of them.

#include "parallel.h"
#include "vectors.h"

#include <cmath>
#include <limits>

namespace {

inline void write(float* to, float x) { *to = x; }
inline void write(bf16* to, float x) {  // to nearest, ties to even, as torch rounds
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    to->bits = x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// One head: (a, b) -> (a cos - b sin, b cos + a sin), its halves a and b.
template <typename T>
inline void rotate(const float* x, const float* cos, const float* sin, int64_t dim, T* out) {
    const int64_t half = dim / 2;
    for (int64_t i = 0; i < half; i++) {
        write(out + i, x[i] * cos[i] - x[i + half] * sin[i]);
        write(out + i + half, x[i + half] * cos[i + half] + x[i] * sin[i + half]);
    }
}

}  // namespace

// Mirrored by kernels/native_build.py.
struct Storing {
    int64_t batch, fresh, heads, kv_heads, dim;  // fresh: T
    int64_t qk_strides[2], v_strides[2];         // batch, T; heads lie side by side
    int64_t k_strides[3], v_cache_strides[3];    // cache row, head, key
    int64_t half;                                // caches are bfloat16
    int64_t threads;
};

namespace {

template <typename T>
void store(const Storing& p, const float* qk, const float* v, const float* tables, float* q,
           T* k_cache, T* v_cache, const int64_t* rows, const int64_t* entries) {
    const int64_t tokens = p.batch * p.fresh, all = p.heads + 2 * p.kv_heads;
    each(tokens, tokens * all * p.dim, p.threads, [&](int64_t token) {
        const int64_t b = token / p.fresh, t = token % p.fresh, entry = entries[b] + t;
        const float* cos = tables + token * p.dim;
        const float* sin = cos + tokens * p.dim;
        const float* from = qk + b * p.qk_strides[0] + t * p.qk_strides[1];
        for (int64_t h = 0; h < p.heads; h++)
            rotate(from + h * p.dim, cos, sin, p.dim, q + (token * p.heads + h) * p.dim);
        const float* values = v + b * p.v_strides[0] + t * p.v_strides[1];
        for (int64_t h = 0; h < p.kv_heads; h++) {
            rotate(from + (p.heads + h) * p.dim, cos, sin, p.dim,
                   k_cache + rows[b] * p.k_strides[0] + h * p.k_strides[1] +
                       entry * p.k_strides[2]);
            T* to = v_cache + rows[b] * p.v_cache_strides[0] + h * p.v_cache_strides[1] +
                    entry * p.v_cache_strides[2];
            for (int64_t d = 0; d < p.dim; d++) write(to + d, values[h * p.dim + d]);
        }
    });
}

}  // namespace

extern "C" {

// x [rows, width] -> x / sqrt(mean(x²) + eps) * weight.
void magicdec_rms_norm(const float* x, const float* weight, float* out, int64_t rows,
                       int64_t width, float eps, int64_t threads) {
    each(rows, rows * width, threads, [=](int64_t row) {
        const float* from = x + row * width;
        Vec squares{};
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) squares += load(from + i) * load(from + i);
        float total = sum(squares);
        for (; i < width; i++) total += from[i] * from[i];
        const float scale = 1 / std::sqrt(total / static_cast<float>(width) + eps);
        for (i = 0; i < width; i++) out[row * width + i] = from[i] * scale * weight[i];
    });
}

// x [rows, 2, width]: gate and up -> silu(gate) * up.
void magicdec_gate(const float* x, float* out, int64_t rows, int64_t width, int64_t threads) {
    each(rows, rows * width, threads, [=](int64_t row) {
        const float *gate = x + 2 * row * width, *up = gate + width;
        float* to = out + row * width;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            const Vec g = load(gate + i), one = broadcast(1);
            const Vec small = exp2_vec((g < -g ? g : -g) * 1.44269504f);  // e^-|g|
            const Vec top = g < Vec{} ? small : one;
            ::store(to + i, g * top / (one + small) * load(up + i));
        }
        for (; i < width; i++) to[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    });
}

// x [rows, width] -> each row brought to 0..1, with where it was: ranges [rows, 2], low and span.
void magicdec_spread(const float* x, float* out, float* ranges, int64_t rows, int64_t width,
                     int64_t threads) {
    each(rows, rows * width, threads, [=](int64_t row) {
        const float* from = x + row * width;
        float low = from[0], high = from[0];
        int64_t i = 0;
        if (width >= LANES) {
            Vec least = load(from), most = least;
            for (i = LANES; i + LANES <= width; i += LANES) {
                const Vec v = load(from + i);
                least = v < least ? v : least;
                most = v > most ? v : most;
            }
            for (int64_t lane = 0; lane < LANES; lane++) {
                low = std::min(low, least[lane]);
                high = std::max(high, most[lane]);
            }
        }
        for (; i < width; i++) {
            low = std::min(low, from[i]);
            high = std::max(high, from[i]);
        }
        const float span = std::max(high - low, std::numeric_limits<float>::min());
        float* to = out + row * width;
        for (i = 0; i + LANES <= width; i += LANES)
            ::store(to + i, (load(from + i) - broadcast(low)) / broadcast(span));
        for (; i < width; i++) to[i] = (from[i] - low) / span;
        ranges[2 * row] = low;
        ranges[2 * row + 1] = span;
    });
}

// Of y [rows, width], products of spread rows with a weight: those of the rows as they were, in
// place. sums [width]: of each row of the weight; bias [width] or null.
void magicdec_restore(float* y, const float* ranges, const float* sums, const float* bias,
                      int64_t rows, int64_t width, int64_t threads) {
    each(rows, rows * width, threads, [=](int64_t row) {
        const float low = ranges[2 * row], span = ranges[2 * row + 1];
        float* to = y + row * width;
        if (bias)
            for (int64_t i = 0; i < width; i++) to[i] = to[i] * span + low * sums[i] + bias[i];
        else
            for (int64_t i = 0; i < width; i++) to[i] = to[i] * span + low * sums[i];
    });
}

// Rotates q and k of qk [batch, T, heads + kv_heads, dim] by tables (cos, sin) [2, batch, T, dim];
// q [batch, T, heads, dim] is given back, k and v [batch, T, kv_heads, dim] are stored from each
// row's entry on.
void magicdec_store(const Storing* p, const float* qk, const float* v, const float* tables,
                    float* q, void* k_cache, void* v_cache, const int64_t* rows,
                    const int64_t* entries) {
    if (p->half)
        store(*p, qk, v, tables, q, static_cast<bf16*>(k_cache), static_cast<bf16*>(v_cache),
              rows, entries);
    else
        store(*p, qk, v, tables, q, static_cast<float*>(k_cache), static_cast<float*>(v_cache),
              rows, entries);
}

}  // extern "C"
