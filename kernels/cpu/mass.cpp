// The attention weight that every key gets from one query per head, summed over the query heads of
// its KV head. Blocks of keys are weighed as attention's are; merging them, the weights become
// relative to all keys. Scores come from the keys, or from tables of what they were quantised to.

#include "scores.h"

namespace {

// `Scores` fills [M, BLOCK] with the scores of an item's keys.
template <typename Scores>
class Mass : public Blocks<Mass<Scores>> {
   public:
    // Keys [0, sinks) and the last `recent` take no part; out [batch, kv_heads, width].
    Mass(const Problem& p, const Scores& scores, int64_t sinks, int64_t recent, float* out,
         int64_t width)
        : Blocks<Mass>(p, Layout(p, BLOCK)), scores(scores), sinks(sinks), recent(recent), out(out),
          width(width) {}

    void block(const Item& at, float* partial, float* mine) const {
        const int64_t base = at.base(p), end = at.end(p);
        scores(at, partial, mine, this);
        float *top = partial + layout.queries * BLOCK, *total = top + layout.queries;
        const int64_t low = std::max<int64_t>(sinks - base, 0);
        const int64_t high = std::max<int64_t>(p.lengths[at.b] - recent - base, 0);
        for (int64_t m = 0; m < layout.queries; m++)
            total[m] = weigh(partial + m * BLOCK, end, low, high, scores.scale, top + m);
    }

    void merge(const Item& at) const {
        const int64_t queries = layout.queries, step = layout.partial;
        float* first = partials + at.first * step;
        float* to = out + (at.b * p.kv_heads + at.head) * width;
        for (int64_t m = 0; m < queries; m++) {
            float* tops = first + queries * BLOCK + m;
            const float* totals = tops + queries;
            float top = tops[0], total = 0;
            for (int64_t i = 1; i < at.blocks; i++) top = std::max(top, tops[i * step]);
            for (int64_t i = 0; i < at.blocks; i++) {
                tops[i * step] = exp2_vec(broadcast(tops[i * step] - top))[0];
                total += tops[i * step] * totals[i * step];
            }
            const float share = total > 0 ? 1 / total : 0;  // 0: no key takes part
            for (int64_t i = 0; i < at.blocks; i++) tops[i * step] *= share;
        }
        const int64_t length = p.lengths[at.b];
        for (int64_t i = 0; i < at.blocks; i++) {
            const float *weights = first + i * step, *shares = weights + queries * BLOCK;
            const int64_t end = std::min(length - i * BLOCK, BLOCK);
            for (int64_t k = 0; k < end; k += LANES) {
                Vec all{};
                for (int64_t m = 0; m < queries; m++)
                    all += load(weights + m * BLOCK + k) * shares[m];
                if (k + LANES <= end)
                    store(to + i * BLOCK + k, all);
                else
                    for (int64_t j = k; j < end; j++) to[i * BLOCK + j] = all[j - k];
            }
        }
        std::fill(to + length, to + width, 0.0f);
    }

   private:
    using Blocks<Mass>::p, Blocks<Mass>::layout, Blocks<Mass>::partials;
    const Scores scores;
    const int64_t sinks, recent;
    float* out;
    const int64_t width;
};

constexpr int64_t SOON = 1 << 14;  // bytes from a key that is read to one that is fetched

// out[m * BLOCK + j] = q[m] · keys[j] for eight keys, without the transposition that pays for the
// many queries of a verify pass. `ahead` is fetched meanwhile.
template <int MR, typename T>
void dot(const float* const* q, const T* const* keys, int64_t dim, float* out, const char* ahead) {
    constexpr int HALF = LANES / 2;  // of the keys: 12 sums, 3 of q and 1 of a key fill 16 registers
    constexpr int64_t PACE = HALF * LANES * sizeof(T);
    Vec sums[MR][LANES];
    for (int first = 0; first < LANES; first += HALF) {
        Vec part[MR][HALF]{};
        for (int64_t d = 0; d < dim; d += LANES) {
            if (ahead)
                for (int64_t i = 0; i < PACE; i += CACHE_LINE, ahead += CACHE_LINE) prefetch(ahead);
            Vec held[MR];
            for (int m = 0; m < MR; m++) held[m] = in_register(load(q[m] + d));
            for (int j = 0; j < HALF; j++) {
                const Vec x = in_register(load(keys[first + j] + d));
                for (int m = 0; m < MR; m++) part[m][j] += held[m] * x;
            }
        }
        for (int m = 0; m < MR; m++)
            for (int j = 0; j < HALF; j++) sums[m][first + j] = part[m][j];
    }
    for (int m = 0; m < MR; m++) store(out + m * BLOCK, sums_of(sums[m]));
}

template <typename T>
struct KeyScores {
    const Problem& p;
    const float* q;
    const T* k;
    const float scale = 1.44269504f / std::sqrt(static_cast<float>(p.dim));

    template <typename Search>
    void operator()(const Item& at, float* out, float* mine, const Search* search) const {
        const auto rows = reinterpret_cast<const float**>(mine);
        find_queries(p, q, at, rows);
        const int64_t group = p.heads / p.kv_heads, end = at.end(p);
        const Span<T> keys(p, k, p.k_strides, at);
        const char* next = search->next_keys(k).next;
        const int64_t bytes = keys.stride * int64_t{sizeof(T)}, distance = SOON / bytes;
        for (int64_t t = 0; t < end; t += LANES) {
            const T* eight[LANES];
            for (int64_t j = 0; j < LANES; j++) eight[j] = keys[std::min(t + j, end - 1)];
            const int64_t beyond = t + distance - end;
            const char* soon = beyond < 0 ? reinterpret_cast<const char*>(keys[t + distance])
                               : next     ? next + beyond * bytes
                                          : nullptr;
            for (int64_t m = 0; m < group; m += 3) {
                const char* ahead = m == 0 ? soon : nullptr;
                switch (group - m) {
                    case 1: dot<1>(rows + m, eight, p.dim, out + m * BLOCK + t, ahead); break;
                    case 2: dot<2>(rows + m, eight, p.dim, out + m * BLOCK + t, ahead); break;
                    default: dot<3>(rows + m, eight, p.dim, out + m * BLOCK + t, ahead);
                }
            }
        }
    }
};

// Product quantisation: a key is `p.dim` codes, and its score the sum of their entries in as many
// tables. tables [batch, kv_heads, parts, count, padded]: the query heads side by side, and zeros
// to a multiple of LANES.
struct CodeScores {
    const Problem& p;
    const float* tables;
    const uint8_t* codes;
    int64_t count;
    const float scale = 1.44269504f;

    template <typename Search>
    void operator()(const Item& at, float* out, float*, const Search*) const {
        const int64_t group = p.heads / p.kv_heads, padded = round_up(group, LANES);
        const float* own = tables + (at.b * p.kv_heads + at.head) * p.dim * count * padded;
        const Span<uint8_t> keys(p, codes, p.k_strides, at);
        const int64_t end = at.end(p);
        float sums[LANES * LANES], turned[LANES * LANES];
        for (int64_t m = 0; m < group; m += LANES) {
            for (int64_t k = 0; k < end; k += LANES) {
                for (int64_t j = 0; j < LANES; j++) {
                    const uint8_t* code = keys[std::min(k + j, end - 1)];
                    const float* table = own + m;
                    Vec sum{};
                    for (int64_t i = 0; i < p.dim; i++, table += count * padded)
                        sum += load(table + code[i] * padded);
                    store(sums + j * LANES, sum);
                }
                transpose_keys(sums, LANES, LANES, turned, LANES);
                for (int64_t j = 0; j < std::min<int64_t>(group - m, LANES); j++)
                    store(out + (m + j) * BLOCK + k, load(turned + j * LANES));
            }
        }
    }
};

}  // namespace

extern "C" {

int64_t magicdec_mass_workspace(const Problem* p) { return Layout(*p, BLOCK).bytes; }

// q [batch, 1, heads, dim] and the keys as their strides say.
void magicdec_key_mass(const Problem* p, const float* q, const void* k, float* out,
                       int64_t width) {
    if (p->half)
        Mass(*p, KeyScores<bf16>{*p, q, static_cast<const bf16*>(k)}, 0, 0, out, width).run();
    else
        Mass(*p, KeyScores<float>{*p, q, static_cast<const float*>(k)}, 0, 0, out, width).run();
}

// Codes [batch, kv_heads, S, dim] as k_strides say; `count` centroids of each part.
void magicdec_code_mass(const Problem* p, const float* tables, const uint8_t* codes, int64_t count,
                        int64_t sinks, int64_t recent, float* out, int64_t width) {
    Mass(*p, CodeScores{*p, tables, codes, count}, sinks, recent, out, width).run();
}

}  // extern "C"
