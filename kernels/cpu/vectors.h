// Eight floats at a time, in GCC's and Clang's vector extensions: AVX2 becomes one register, NEON
// or SSE two, anything else scalar code. Only the transposition needs intrinsics to be fast.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
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

inline float highest(Vec x) {
    float out = x[0];
    for (int i = 1; i < LANES; i++) out = std::max(out, x[i]);
    return out;
}

inline float sum(Vec x) {
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
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
// Stores the transpose of eight rows of eight, `stride` floats between the rows of `out`.
inline void transpose_8x8(const Vec* rows, float* out, int stride) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        store(out + i * stride, _mm256_permute2f128_ps(b[i], b[i + 4], 0x20));
        store(out + (i + 4) * stride, _mm256_permute2f128_ps(b[i], b[i + 4], 0x31));
    }
}
#else
inline void transpose_8x8(const Vec* rows, float* out, int stride) {
    for (int d = 0; d < 8; d++)
        for (int k = 0; k < 8; k++) out[d * stride + k] = rows[k][d];
}
#endif

}  // namespace
