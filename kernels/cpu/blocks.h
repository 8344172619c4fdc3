// Work items shared among threads, and their results merged head by head.
#pragma once

#include "parallel.h"
#include "work.h"

namespace {

// `Own` says what is done: block(item, partial, scratch) and merge(item).
template <typename Own>
class Blocks {
   public:
    void run() {
        const auto body = [](void* self) { static_cast<Own*>(self)->work(); };
        // All threads even for few items: the runtime would end the others, and torch would have
        // to start them again.
        GOMP_parallel(body, static_cast<Own*>(this), p.threads, 0);
    }

    // Items are taken one by one: a thread that is held up does not hold up the others.
    void work() {
        float* mine = scratch + workers++ * layout.scratch;
        for (int64_t item; (item = next++) < layout.items;) {
            const Item at(p, item);
            own().block(at, partials + item * layout.partial, mine);
            if (left[at.b * p.kv_heads + at.head].fetch_sub(1, std::memory_order_acq_rel) == 1)
                own().merge(at);
        }
    }

    // A guess: another thread may be faster. It is only prefetched.
    template <typename T>
    Ahead next_keys(const T* k) const {
        const int64_t item = next.load(std::memory_order_relaxed);
        if (item >= layout.items) return {nullptr, 0};
        const Item then(p, item);
        const int64_t begin = then.begin(p);
        return Span<T>(p, k, p.k_strides, then).ahead(begin, group_end(begin, KEYS, then.end(p)));
    }

   protected:
    const Problem& p;
    const Layout layout;
    float* partials;

    Blocks(const Problem& p, const Layout& layout) : p(p), layout(layout) {
        partials = reinterpret_cast<float*>(
            round_up(reinterpret_cast<int64_t>(p.workspace), CACHE_LINE));
        scratch = partials + layout.items * layout.partial;
        left = reinterpret_cast<std::atomic<int64_t>*>(scratch + p.threads * layout.scratch);
        for (int64_t b = 0; b < p.batch; b++)
            for (int64_t h = 0; h < p.kv_heads; h++)
                left[b * p.kv_heads + h] = Layout::blocks(p, b);
    }

   private:
    float* scratch;
    std::atomic<int64_t>* left;  // blocks not done yet, per batch row and KV head
    std::atomic<int64_t> next{0}, workers{0};

    Own& own() { return static_cast<Own&>(*this); }
};

}  // namespace
