// Attention of a few new queries over a long KV cache, float32 arithmetic on float32 or bfloat16
// storage (flash-decoding, https://crfm.stanford.edu/2023/10/12/flashdecoding.html).
//
// A work item is (batch row, KV head, block of BLOCK keys). Its M = T * group queries share every
// key that is read:
//   1. KEYS keys at a time are transposed (and widened) into L1, so that a register of scores is
//      eight keys of one query and no horizontal sums are needed; scores [M, BLOCK] = Q Kᵀ;
//   2. softmax weights relative to the block's own maximum;
//   3. O [M, D] = P V.
// The thread that finishes a head's last block merges the blocks. Blocks begin at multiples of
// BLOCK, whatever the batch, T or the number of threads: a query's result is the same bits in a
// plain step and in a verify pass, alone and in a batch.

#include "scores.h"

namespace {

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

// Values [from, to) as floats: where they are, or widened into `buffer`; with their stride.
inline std::pair<const float*, int64_t> widen(const Span<float>& v, int64_t from, int64_t, float*) {
    return {v[from], v.stride};
}
inline std::pair<const float*, int64_t> widen(const Span<bf16>& v, int64_t from, int64_t to,
                                              float* buffer) {
    for (int64_t k = from; k < to; k++)
        for (int64_t d = 0; d < v.dim; d += LANES)
            store(buffer + (k - from) * v.dim + d, load(v[k] + d));
    return {buffer, v.dim};
}

template <typename T>
class Attention : public Blocks<Attention<T>> {
   public:
    Attention(const Problem& p, const float* q, const T* k, const T* v, float* out)
        : Blocks<Attention>(p, Layout(p, p.dim)), q(q), k(k), v(v), out(out),
          group(p.heads / p.kv_heads),
          scale(1.44269504f / std::sqrt(static_cast<float>(p.dim))) {}

    // O, maximum and sum of all queries of one KV head. Keys count from the block's.
    void block(const Item& at, float* partial, float* mine) const {
        const int64_t dim = p.dim, queries = layout.queries, base = at.base(p);
        const int64_t begin = at.begin(p), end = at.end(p);
        const Span<T> keys(p, k, p.k_strides, at), values(p, v, p.v_strides, at);
        float *tile = mine, *wide = tile + KEYS * dim, *scores = wide + VALUES * dim;
        const auto q_rows = reinterpret_cast<const float**>(scores + queries * BLOCK);
        const auto score_rows = q_rows + queries;
        find_queries(p, q, at, q_rows);
        for (int64_t m = 0; m < queries; m++) score_rows[m] = scores + m * BLOCK;

        for (int64_t t = begin / LANES * LANES, stop; t < end; t = stop) {
            stop = group_end(t, KEYS, end);
            Ahead soon = stop < end ? keys.ahead(stop, group_end(stop, KEYS, end))
                                    : values.ahead(begin, group_end(begin, VALUES, end));
            const Ahead now = soon.first(2.0 / static_cast<double>(queries + 2));
            transpose(keys, t, stop, tile, now);
            multiply_rows({q_rows, 0, tile, KEYS, dim, scores + t, BLOCK,
                           round_up(stop - t, LANES), false}, queries, soon);
        }
        float *top = partial + queries * dim, *total = top + queries;
        for (int64_t m = 0; m < queries; m++) {
            const int64_t root = p.lengths[at.b] - p.tail - base;
            const uint8_t* sees = p.tree ? p.tree + (at.b * p.fresh + m / group) * p.tail : nullptr;
            // The query's position, which is its key where there is no tree.
            const int64_t own = root + (sees ? std::count(sees, sees + p.tail, 1) - 1 : m / group);
            const int64_t low = p.window ? std::max<int64_t>(own + 1 - p.window, 0) : 0;
            const int64_t high = sees ? end : std::min(std::max<int64_t>(own + 1, 0), end);
            if (sees) hide(scores + m * BLOCK, sees, root, own, end);
            total[m] = weigh(scores + m * BLOCK, end, low, high, scale, top + m);
        }
        for (int64_t t = begin, stop; t < end; t = stop) {
            stop = group_end(t, VALUES, end);
            const Ahead soon = stop < end ? values.ahead(stop, group_end(stop, VALUES, end))
                                          : this->next_keys(k);
            const auto [rows, stride] = widen(values, t, stop, wide);
            multiply_rows({score_rows, t, rows, stride, stop - t, partial, dim, dim, t != begin},
                          queries, soon);
        }
    }

    void merge(const Item& at) const {
        const int64_t dim = p.dim, step = layout.partial;
        const float* first = partials + at.first * step;
        for (int64_t m = 0; m < layout.queries; m++) {
            const float* tops = first + layout.queries * dim + m;
            const float* totals = tops + layout.queries;
            float top = tops[0], total = 0;
            for (int64_t i = 1; i < at.blocks; i++) top = std::max(top, tops[i * step]);
            float* o = out + ((at.b * p.fresh + m / group) * p.heads + at.head * group +
                              m % group) * dim;
            std::fill(o, o + dim, 0.0f);
            for (int64_t i = 0; i < at.blocks; i++) {
                const Vec weight = exp2_vec(broadcast(tops[i * step] - top));
                total += weight[0] * totals[i * step];
                for (int64_t d = 0; d < dim; d += LANES)
                    store(o + d, load(o + d) + weight * load(first + i * step + m * dim + d));
            }
            for (int64_t d = 0; d < dim; d += LANES) store(o + d, load(o + d) / total);
        }
    }

   private:
    using Blocks<Attention>::p, Blocks<Attention>::layout, Blocks<Attention>::partials;
    const float* q;
    const T *k, *v;
    float* out;
    const int64_t group;
    const float scale;  // to exponents of 2

    // Hides the keys of the tree that its node at position `own` does not see.
    void hide(float* s, const uint8_t* sees, int64_t root, int64_t own, int64_t end) const {
        int64_t position = root;  // of the ancestor that comes next
        for (int64_t i = 0; i < p.tail && root + i < end; i++) {
            const bool seen = sees[i] && (!p.window || position > own - p.window);
            position += sees[i];
            if (!seen && root + i >= 0) s[root + i] = -INFINITY;
        }
    }
};

}  // namespace

extern "C" {

int64_t magicdec_attention_workspace(const Problem* p) { return Layout(*p, p->dim).bytes; }

// q [batch, T, heads, dim] and the caches as their strides say; out [batch, T, heads, dim] dense.
void magicdec_attention(const Problem* p, const float* q, const void* k, const void* v,
                        float* out) {
    if (p->half)
        Attention(*p, q, static_cast<const bf16*>(k), static_cast<const bf16*>(v), out).run();
    else
        Attention(*p, q, static_cast<const float*>(k), static_cast<const float*>(v), out).run();
}

}  // extern "C"
