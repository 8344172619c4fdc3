// Eight floats at a time, in GCC's and Clang's vector extensions: AVX2 becomes one register, NEON
// or SSE two, anything else scalar code. Only the transposition needs intrinsics to be fast.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace {

constexpr int LANES = 8;

typedef float Vec __attribute__((vector_size(32)));
typedef int32_t IVec __attribute__((vector_size(32)));
typedef float UnalignedVec __attribute__((vector_size(32), aligned(4), may_alias));

struct bf16 {
    uint16_t bits;
};

inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline void store(float* p, Vec x) { *reinterpret_cast<UnalignedVec*>(p) = x; }
inline Vec broadcast(float x) { return x - Vec{}; }
inline Vec maximum(Vec a, Vec b) { return a > b ? a : b; }

// Loads x into a register once; GCC would otherwise load it again for every use.
inline Vec in_register(Vec x) {
#if defined(__AVX__)
    __asm__("" : "+x"(x));
#endif
    return x;
}

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
    const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

inline Vec load(const bf16* p) {
#if defined(__AVX2__)
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<Vec>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
#else
    Vec out;
    for (int i = 0; i < LANES; i++) out[i] = to_float(p[i]);
    return out;
#endif
}

// A bit for each of eight numbers that is at least `least`.
inline unsigned at_least(const int32_t* x, int32_t least) {
    unsigned bits = 0;
#if defined(__AVX2__)
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i less = _mm256_cmpgt_epi32(_mm256_set1_epi32(least), all);
    bits = 255 & ~_mm256_movemask_ps(_mm256_castsi256_ps(less));
#else
    for (int i = 0; i < LANES; i++) bits |= (x[i] >= least) << i;
#endif
    return bits;
}

inline float highest(Vec x) {
    float out = x[0];
    for (int i = 1; i < LANES; i++) out = std::max(out, x[i]);
    return out;
}

inline float sum(Vec x) {
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

// The sum of each of eight registers.
inline Vec sums_of(const Vec* x) {
#if defined(__AVX__)
    const auto add = [](Vec a, Vec b) { return static_cast<Vec>(_mm256_hadd_ps(a, b)); };
    const Vec low = add(add(x[0], x[1]), add(x[2], x[3]));
    const Vec high = add(add(x[4], x[5]), add(x[6], x[7]));
    return _mm256_permute2f128_ps(low, high, 0x20) + _mm256_permute2f128_ps(low, high, 0x31);
#else
    Vec out;
    for (int i = 0; i < LANES; i++) out[i] = sum(x[i]);
    return out;
#endif
}

// 2^x for x <= 0 to 2e-7, exactly 0 below 2^-126 (so a masked score of -inf weighs nothing).
// Adding 1.5 * 2^23 rounds x to an integer in the low mantissa bits; with 127 more, these are the
// exponent field of 2^n.
inline Vec exp2_vec(Vec x) {
    const Vec magic = broadcast(12582912.0f + 127.0f), lowest = broadcast(-127.0f);
    x = x < lowest ? lowest : x;  // this way round, NaN stays NaN
    const Vec n = x + magic;
    const Vec f = x - (n - magic);  // -0.5..0.5
    Vec y = broadcast(1.32764713e-3f);
    y = y * f + 9.67554096e-3f;
    y = y * f + 5.55071309e-2f;
    y = y * f + 2.40221202e-1f;
    y = y * f + 6.93146944e-1f;
    y = y * f + 1.00000012f;
    return y * reinterpret_cast<Vec>(reinterpret_cast<IVec>(n) << 23);
}

#if defined(__AVX2__)
// Eight registers of eight, transposed in place.
inline void transpose_8x8(__m256* r) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}
#endif

// Eight keys [8, dim] -> out [dim, 8], `step` floats between the rows of out; from dimension d on.
template <typename T>
inline void transpose_keys(const T* keys, int64_t stride, int64_t d, int64_t dim, float* out,
                           int64_t step) {
    for (; d < dim; d += LANES) {
#if defined(__AVX2__)
        __m256 r[8];
        for (int i = 0; i < 8; i++) r[i] = load(keys + i * stride + d);
        transpose_8x8(r);
        for (int i = 0; i < 8; i++) store(out + (d + i) * step, r[i]);
#else
        for (int k = 0; k < 8; k++)
            for (int i = 0; i < LANES; i++)
                out[(d + i) * step + k] = to_float(keys[k * stride + d + i]);
#endif
    }
}

inline void transpose_keys(const float* keys, int64_t stride, int64_t dim, float* out,
                           int64_t step) {
    transpose_keys(keys, stride, 0, dim, out, step);
}

// Two neighbouring bfloat16 move as one float, which halves the shuffles.
inline void transpose_keys(const bf16* keys, int64_t stride, int64_t dim, float* out,
                           int64_t step) {
    int64_t d = 0;
#if defined(__AVX2__)
    for (; d + 16 <= dim; d += 16) {
        __m256 r[8];
        for (int i = 0; i < 8; i++)
            r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(keys + i * stride + d));
        transpose_8x8(r);
        const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000));
        for (int i = 0; i < 8; i++) {
            const __m256i pair = _mm256_castps_si256(r[i]);
            store(out + (d + 2 * i) * step, _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)));
            store(out + (d + 2 * i + 1) * step,
                  _mm256_castsi256_ps(_mm256_and_si256(pair, upper)));
        }
    }
#endif
    transpose_keys(keys, stride, d, dim, out, step);
}

}  // namespace
