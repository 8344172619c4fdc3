// Work shared among torch's threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

// torch's own OpenMP runtime: torch loads it globally, and this library is linked against none,
// so that there is one pool of threads. Any compiler can call it; no OpenMP support is needed.
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);

namespace {

constexpr int64_t WORTH_THREADS = 1 << 16;  // numbers; below, waking threads takes longer

// work(i) for every i < count, shared among threads when there is enough of it.
template <typename Work>
void each(int64_t count, int64_t numbers, int64_t threads, const Work& work) {
    struct Shared {
        const Work& work;
        std::atomic<int64_t> next{0};
        int64_t count, step;
    } shared{work, {}, count, std::max<int64_t>(1, count / (4 * threads))};
    const auto body = [](void* data) {
        auto& s = *static_cast<Shared*>(data);
        for (int64_t i; (i = s.next.fetch_add(s.step)) < s.count;)
            for (int64_t end = std::min(i + s.step, s.count); i < end; i++) s.work(i);
    };
    if (threads == 1 || numbers < WORTH_THREADS)
        body(&shared);
    else
        GOMP_parallel(body, &shared, threads, 0);
}

}  // namespace
