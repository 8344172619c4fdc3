// Attention of a few new queries over a long KV cache, float32 arithmetic on float32 or bfloat16
// storage (flash-decoding, https://crfm.stanford.edu/2023/10/12/flashdecoding.html).
//
// A work item is (batch row, KV head, block of BLOCK keys). Its M = T * group queries share every
// key that is read:
//   1. TILE keys are transposed (and widened) into L1, so that a register of scores is eight keys
//      of one query and no horizontal sums are needed; scores [M, BLOCK] = Q Kᵀ;
//   2. softmax weights relative to the block's own maximum;
//   3. O [M, D] = P V, six queries by sixteen dimensions in registers.
// The thread that finishes a head's last block merges the blocks. Blocks begin at multiples of
// BLOCK, whatever the batch, T or the number of threads: a query's result is the same bits in a
// plain step and in a verify pass, alone and in a batch.

#include "vectors.h"

#include <atomic>
#include <cmath>

// torch's own OpenMP runtime: torch loads it globally, and this library is linked against none,
// so that there is one pool of threads. Any compiler can call it; no OpenMP support is needed.
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);

// Mirrored by kernels/native.py.
struct Problem {
    int64_t batch, heads, kv_heads, fresh, dim;  // fresh: T
    int64_t window;                              // 0: none
    const int64_t *rows, *lengths;               // [batch]
    int64_t q_strides[3];                        // batch, T, head; in elements
    int64_t k_strides[3], v_strides[3];          // cache row, head, key
    int64_t half;                                // caches are bfloat16
    int64_t threads;
    void* workspace;
};

namespace {

constexpr int64_t BLOCK = 256;
constexpr int64_t TILE = 32, VTILE = 64;
constexpr int64_t CACHE_LINE = 64;
constexpr float HIDDEN = -1e30f;  // below any score; finite, as -inf minus -inf is NaN

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Where each part of the workspace lies.
struct Layout {
    int64_t queries, items, scratch, bytes;
    int64_t partial;  // floats per item: O [M, D], maximum [M], sum [M]

    explicit Layout(const Problem& p) : queries(p.fresh * (p.heads / p.kv_heads)), items(0) {
        for (int64_t b = 0; b < p.batch; b++) items += p.kv_heads * blocks(p, b);
        partial = round_up(queries * (p.dim + 2), CACHE_LINE / 4);
        scratch = round_up((TILE + VTILE) * p.dim + queries * BLOCK, CACHE_LINE / 4);
        bytes = 4 * (items * partial + p.threads * scratch) +
                p.batch * p.kv_heads * sizeof(std::atomic<int64_t>) + CACHE_LINE;
    }

    static int64_t start(const Problem& p, int64_t b) {  // the first key that any query sees
        return p.window ? std::max<int64_t>(0, p.lengths[b] - p.fresh + 1 - p.window) : 0;
    }
    static int64_t blocks(const Problem& p, int64_t b) {
        return (p.lengths[b] + BLOCK - 1) / BLOCK - start(p, b) / BLOCK;
    }
};

// Memory that is needed next, fetched a little at every step of a product, so that reading and
// arithmetic overlap: hardware prefetchers lose a stream that pauses or crosses a page.
struct Ahead {
    const char* next = nullptr;
    int64_t bytes = 0;
};

// acc[m][j] = Σ a[m][i] * b[i][8 j..] over i in [0, count): both products of attention.
template <int MR, int NV, typename A>
inline void multiply(A a, const float* b, int64_t stride, int64_t count, float* out,
                     int64_t out_stride, bool add, const char*& ahead, int64_t pace) {
    Vec acc[MR][NV];
    for (int m = 0; m < MR; m++)
        for (int j = 0; j < NV; j++)
            acc[m][j] = add ? load(out + m * out_stride + j * LANES) : Vec{};
    for (int64_t i = 0; i < count; i++) {
        const float* row = b + i * stride;
        __builtin_prefetch(ahead, 0, 2);
        if (NV == 4) __builtin_prefetch(ahead + CACHE_LINE, 0, 2);
        ahead += pace;
        // The fewer of the two stay in registers beside the sums, the others pass through one.
        if constexpr (NV <= MR) {
            Vec held[NV];
            for (int j = 0; j < NV; j++) held[j] = in_register(load(row + j * LANES));
            for (int m = 0; m < MR; m++) {
                const Vec x = in_register(broadcast(a(m, i)));
                for (int j = 0; j < NV; j++) acc[m][j] += x * held[j];
            }
        } else {
            Vec held[MR];
            for (int m = 0; m < MR; m++) held[m] = in_register(broadcast(a(m, i)));
            for (int j = 0; j < NV; j++) {
                const Vec x = in_register(load(row + j * LANES));
                for (int m = 0; m < MR; m++) acc[m][j] += held[m] * x;
            }
        }
    }
    for (int m = 0; m < MR; m++)
        for (int j = 0; j < NV; j++) store(out + m * out_stride + j * LANES, acc[m][j]);
}

// The columns [0, width) of such a product, as wide as MR rows leave registers for.
template <int MR, typename A>
void product(A a, const float* b, int64_t stride, int64_t count, float* out, int64_t out_stride,
             int64_t width, bool add, const char*& ahead, int64_t pace) {
    constexpr int NV = MR <= 3 ? 4 : 2;
    int64_t c = 0;
    for (; c + NV * LANES <= width; c += NV * LANES)
        multiply<MR, NV>(a, b + c, stride, count, out + c, out_stride, add, ahead, pace);
    if (NV == 4 && c + 2 * LANES <= width) {
        multiply<MR, 2>(a, b + c, stride, count, out + c, out_stride, add, ahead, pace);
        c += 2 * LANES;
    }
    if (c < width) multiply<MR, 1>(a, b + c, stride, count, out + c, out_stride, add, ahead, pace);
}

// All rows of a product, up to six at a time and evenly. make_a(first row) gives that `a`.
template <typename MakeA>
void product_rows(int64_t rows, MakeA make_a, const float* b, int64_t stride, int64_t count,
                  float* out, int64_t out_stride, int64_t width, bool add, Ahead ahead) {
    const int64_t groups = (rows + 5) / 6;
    const int64_t panel = rows <= 3 ? 4 * LANES : 2 * LANES;
    const int64_t pace = ahead.bytes / (groups * ((width + panel - 1) / panel) * count);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t m = g * rows / groups, end = (g + 1) * rows / groups;
        const auto a = make_a(m);
        float* o = out + m * out_stride;
        switch (end - m) {
            case 1: product<1>(a, b, stride, count, o, out_stride, width, add, ahead.next, pace); break;
            case 2: product<2>(a, b, stride, count, o, out_stride, width, add, ahead.next, pace); break;
            case 3: product<3>(a, b, stride, count, o, out_stride, width, add, ahead.next, pace); break;
            case 4: product<4>(a, b, stride, count, o, out_stride, width, add, ahead.next, pace); break;
            case 5: product<5>(a, b, stride, count, o, out_stride, width, add, ahead.next, pace); break;
            default: product<6>(a, b, stride, count, o, out_stride, width, add, ahead.next, pace);
        }
    }
}

// keys [count, dim] -> out [dim, TILE]. Reads no key beyond count; those columns keep what they
// had, and their scores are masked.
template <typename T>
void transpose_tile(const T* keys, int64_t stride, int64_t count, int64_t dim, float* out) {
    int64_t k = 0;
    for (; k + 8 <= count; k += 8)
        for (int64_t d = 0; d < dim; d += 8) {
            Vec rows[8];
            for (int i = 0; i < 8; i++) rows[i] = load(keys + (k + i) * stride + d);
            transpose_8x8(rows, out + d * TILE + k, TILE);
        }
    for (; k < count; k++)
        for (int64_t d = 0; d < dim; d++) out[d * TILE + k] = to_float(keys[k * stride + d]);
}

// Values as floats with their stride: where they are, or widened into `buffer`.
struct Values {
    const float* data;
    int64_t stride;
};
inline Values widen(const float* v, int64_t stride, int64_t, int64_t, float*) {
    return {v, stride};
}
inline Values widen(const bf16* v, int64_t stride, int64_t count, int64_t dim, float* buffer) {
    for (int64_t k = 0; k < count; k++)
        for (int64_t d = 0; d < dim; d += 8) store(buffer + k * dim + d, load(v + k * stride + d));
    return {buffer, dim};
}

// Scores [0, end) of one query to weights 2^(score * scale - maximum), of which [low, high) are
// visible. Returns the sum.
inline float weights(float* s, int64_t end, int64_t low, int64_t high, float scale, float* top) {
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

template <typename T>
class Attention {
   public:
    Attention(const Problem& p, const float* q, const T* k, const T* v, float* out)
        : p(p), layout(p), q(q), k(k), v(v), out(out), group(p.heads / p.kv_heads),
          scale(1.44269504f / std::sqrt(static_cast<float>(p.dim))) {
        const auto base = round_up(reinterpret_cast<int64_t>(p.workspace), CACHE_LINE);
        partials = reinterpret_cast<float*>(base);
        scratch = partials + layout.items * layout.partial;
        left = reinterpret_cast<std::atomic<int64_t>*>(scratch + p.threads * layout.scratch);
        for (int64_t b = 0; b < p.batch; b++)
            for (int64_t h = 0; h < p.kv_heads; h++) left[b * p.kv_heads + h] = Layout::blocks(p, b);
    }

    void run() {
        const auto body = [](void* self) { static_cast<Attention*>(self)->work(); };
        GOMP_parallel(body, this, std::min(p.threads, layout.items), 0);
    }

   private:
    const Problem& p;
    const Layout layout;
    const float* q;
    const T *k, *v;
    float *out, *partials, *scratch;
    std::atomic<int64_t>* left;  // blocks not done yet, per batch row and KV head
    std::atomic<int64_t> next{0}, workers{0};
    const int64_t group;
    const float scale;  // to base-2 exponents

    struct Item {
        int64_t b, head, block;  // block counts from the row's first one
        int64_t first, blocks;   // item of the head's first block, and how many it has
    };

    Item locate(int64_t item) const {
        int64_t b = 0, blocks, first = 0;
        while (item - first >= p.kv_heads * (blocks = Layout::blocks(p, b))) {
            first += p.kv_heads * blocks;
            b++;
        }
        const int64_t head = (item - first) / blocks;
        first += head * blocks;
        return {b, head, item - first, first, blocks};
    }

    void work() {
        float* mine = scratch + workers++ * layout.scratch;
        for (int64_t item; (item = next++) < layout.items;) {
            const Item at = locate(item);
            attend(at, partials + item * layout.partial, mine);
            if (left[at.b * p.kv_heads + at.head].fetch_sub(1, std::memory_order_acq_rel) == 1)
                merge(at.b, at.head, partials + at.first * layout.partial, at.blocks);
        }
    }

    // `count` keys or values from `position` of a cache that a product should fetch meanwhile.
    Ahead ahead(const T* cache, const int64_t* strides, int64_t b, int64_t head, int64_t position, int64_t count) const {
        if (strides[2] != p.dim || count <= 0) return {};
        return {reinterpret_cast<const char*>(cache + p.rows[b] * strides[0] + head * strides[1] +
                                              position * strides[2]),
                count * p.dim * static_cast<int64_t>(sizeof(T))};
    }

    // One block: O, maximum and sum of the queries of one KV head over keys [base, base + BLOCK).
    void attend(const Item& at, float* partial, float* mine) {
        const int64_t b = at.b, head = at.head;
        const int64_t base = (Layout::start(p, b) / BLOCK + at.block) * BLOCK;
        const int64_t dim = p.dim, queries = layout.queries, length = p.lengths[b];
        const int64_t begin = std::max<int64_t>(Layout::start(p, b) - base, 0);
        const int64_t end = std::min(length - base, BLOCK);
        const T* keys = k + p.rows[b] * p.k_strides[0] + head * p.k_strides[1] + base * p.k_strides[2];
        const T* values =
            v + p.rows[b] * p.v_strides[0] + head * p.v_strides[1] + base * p.v_strides[2];
        float *tile = mine, *wide = mine + TILE * dim, *scores = mine + (TILE + VTILE) * dim;

        const auto queries_from = [&](int64_t m) {
            const float* row[6];
            for (int64_t i = 0; i < std::min<int64_t>(6, queries - m); i++)
                row[i] = query(b, head, m + i);
            return [=](int r, int64_t d) { return row[r][d]; };
        };
        for (int64_t t = begin / LANES * LANES; t < end; t = t / TILE * TILE + TILE) {
            const int64_t stop = std::min(t / TILE * TILE + TILE, end), count = stop - t;
            const Ahead soon = stop < end ? ahead(k, p.k_strides, b, head, base + stop, std::min(TILE, end - stop)) : ahead(v, p.v_strides, b, head, base + begin, std::min(VTILE, end - begin));
            transpose_tile(keys + t * p.k_strides[2], p.k_strides[2], count, dim, tile);
            product_rows(queries, queries_from, tile, TILE, dim, scores + t, BLOCK,
                         round_up(count, LANES), false, soon);
        }
        float *top = partial + queries * dim, *total = top + queries;
        for (int64_t m = 0; m < queries; m++) {
            const int64_t last = length - p.fresh + m / group - base;  // the query's own key
            const int64_t low = p.window ? std::max<int64_t>(last + 1 - p.window, 0) : 0;
            const int64_t high = std::min(std::max<int64_t>(last + 1, 0), end);
            total[m] = weights(scores + m * BLOCK, end, low, high, scale, top + m);
        }
        for (int64_t t = begin; t < end; t = t / VTILE * VTILE + VTILE) {
            const int64_t stop = std::min(t / VTILE * VTILE + VTILE, end), count = stop - t;
            Ahead soon;
            if (stop < end) soon = ahead(v, p.v_strides, b, head, base + stop, std::min(VTILE, end - stop));
            else {
                const int64_t guess = next.load(std::memory_order_relaxed);
                if (guess < layout.items) {
                    const Item then = locate(guess);
                    const int64_t at = std::max((Layout::start(p, then.b) / BLOCK + then.block) * BLOCK, Layout::start(p, then.b));
                    soon = ahead(k, p.k_strides, then.b, then.head, at, std::min(VTILE, p.lengths[then.b] - at));
                }
            }
            const Values rows =
                widen(values + t * p.v_strides[2], p.v_strides[2], count, dim, wide);
            const auto weights_from = [&](int64_t m) {
                const float* s = scores + m * BLOCK + t;
                return [=](int r, int64_t i) { return s[r * BLOCK + i]; };
            };
            product_rows(queries, weights_from, rows.data, rows.stride, count, partial, dim, dim,
                         t != begin, soon);
        }
    }

    void merge(int64_t b, int64_t head, const float* partial, int64_t blocks) {
        const int64_t dim = p.dim, queries = layout.queries, step = layout.partial;
        for (int64_t m = 0; m < queries; m++) {
            const float *tops = partial + queries * dim + m, *sums = tops + queries;
            float top = tops[0];
            for (int64_t i = 1; i < blocks; i++) top = std::max(top, tops[i * step]);
            float total = 0;
            float* o = out + ((b * p.fresh + m / group) * p.heads + head * group + m % group) * dim;
            std::fill(o, o + dim, 0.0f);
            for (int64_t i = 0; i < blocks; i++) {
                const Vec weight = exp2_vec(broadcast(tops[i * step] - top));
                total += weight[0] * sums[i * step];
                for (int64_t d = 0; d < dim; d += LANES)
                    store(o + d, load(o + d) + weight * load(partial + i * step + m * dim + d));
            }
            for (int64_t d = 0; d < dim; d += LANES) store(o + d, load(o + d) / total);
        }
    }

    const float* query(int64_t b, int64_t head, int64_t m) const {
        return q + b * p.q_strides[0] + m / group * p.q_strides[1] +
               (head * group + m % group) * p.q_strides[2];
    }
};

}  // namespace

extern "C" {

int64_t magicdec_attention_workspace(const Problem* p) { return Layout(*p).bytes; }

// q [batch, T, heads, dim] and the caches as their strides say; out [batch, T, heads, dim] dense.
void magicdec_attention(const Problem* p, const float* q, const void* k, const void* v,
                        float* out) {
    if (p->half)
        Attention(*p, q, static_cast<const bf16*>(k), static_cast<const bf16*>(v), out).run();
    else
        Attention(*p, q, static_cast<const float*>(k), static_cast<const float*>(v), out).run();
}

}  // extern "C"
