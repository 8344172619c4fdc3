// The best of many scores, and the copying of what was chosen.

#include "parallel.h"
#include "product.h"

namespace {

// Whole numbers that are ordered as the floats whose bits these are.
inline int32_t in_order(int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); }

inline int64_t count_from(int32_t least, const int32_t* x, int64_t count) {
    int32_t found = 0;
    for (int64_t i = 0; i < count; i++) found += x[i] >= least;
    return found;
}

// Positions of the `wanted` greatest of x [count], from `first` on, ascending; of equal ones the
// last. Bisects the values: counting reads a cached row at full speed, whatever it holds.
void greatest(int32_t* x, int64_t count, int64_t wanted, int64_t first, int64_t* out) {
    if (wanted == 0) return;
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int64_t i = 0; i < count; i++) {
        x[i] = in_order(x[i]);
        least = std::min(least, x[i]);
        most = std::max(most, x[i]);
    }
    int64_t low = least, high = most;  // the wanted-th greatest is in low..high
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        const int64_t found = count_from(middle, x, count);
        if (found < wanted)
            high = middle - 1;
        else
            low = middle;
        if (found == wanted) break;
    }
    int64_t n = 0, i = 0, begin = 0;  // those before `begin` that equal `low` are left out
    for (int64_t spare = count_from(low, x, count) - wanted; spare > 0; begin++)
        spare -= x[begin] == low;
    for (; i < begin; n += x[i++] > low) out[n] = first + i;
    for (; i + LANES <= count; i += LANES)
        for (unsigned found = at_least(x + i, low); found; found &= found - 1)
            out[n++] = first + i + __builtin_ctz(found);
    for (; n < wanted; n += x[i++] >= low) out[n] = first + i;
}

}  // namespace

extern "C" {

// scores [batch, kv_heads, width] -> positions [batch, kv_heads, wanted], ascending: the first
// `sinks`, the last `recent` and the best between them of each row's `lengths`; of a row that is no
// longer than `wanted` all, and padding. Scores are overwritten.
void magicdec_best(int32_t* scores, int64_t* out, const int64_t* lengths, int64_t batch,
                   int64_t kv_heads, int64_t width, int64_t wanted, int64_t sinks, int64_t recent,
                   int64_t threads) {
    constexpr int64_t READS = 16;  // about so often is a score looked at
    each(batch * kv_heads, READS * batch * kv_heads * width, threads, [=](int64_t head) {
        const int64_t length = lengths[head / kv_heads];
        int64_t* to = out + head * wanted;
        int64_t first = wanted, last = 0;
        if (length > wanted) {
            first = sinks;
            last = recent;
            greatest(scores + head * width + first, length - first - last, wanted - first - last,
                     first, to + first);
        }
        for (int64_t i = 0; i < first; i++) to[i] = i;
        for (int64_t i = 0; i < last; i++) to[wanted - last + i] = length - last + i;
    });
}

// Entries of `bytes` bytes each, from[at[batch, kv_heads, width]], to the same place of `to`, whose
// rows and heads are so many bytes apart.
void magicdec_gather(const char* from, char* to, const int64_t* at, int64_t batch,
                     int64_t kv_heads, int64_t width, int64_t bytes, int64_t to_row,
                     int64_t to_head, int64_t threads) {
    constexpr int64_t SOON = 8;  // entries; each waits for memory on its own
    const int64_t count = batch * kv_heads * width;
    each(count, count * bytes / 4, threads, [=](int64_t i) {
        if (i + SOON < count)
            for (int64_t b = 0; b < bytes; b += CACHE_LINE)
                prefetch(from + at[i + SOON] * bytes + b);
        const int64_t head = i / width;
        std::memcpy(to + head / kv_heads * to_row + head % kv_heads * to_head + i % width * bytes,
                    from + at[i] * bytes, bytes);
    });
}

}  // extern "C"
