// Sixteen floats at a time: loads, conversions, dot products of bfloat16 pairs, exp.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

typedef float v16 __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
typedef uint32_t v16u __attribute__((vector_size(64)));
typedef v16 v16_unaligned __attribute__((aligned(4)));
typedef uint16_t bf16;
typedef uint16_t float16;  // IEEE binary16

constexpr int LANES = 16;
constexpr int BLOCK = 16;

static inline v16 load(const float* p) { return *(const v16_unaligned*)p; }
static inline void store(float* p, v16 v) { *(v16_unaligned*)p = v; }
static inline v16 splat(float x) { return x - v16{}; }

static inline float sum(v16 v) {  // fixed tree
    float s[16];
    store(s, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}

static inline bf16 to_bf16(float x) {  // round to nearest even; NaN stays NaN
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7fffffff) > 0x7f800000) return (u >> 16) | 0x40;
    return (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}

static inline float to_float(bf16 x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline v16 load_bf16(const bf16* p) {
    typedef uint16_t v16h __attribute__((vector_size(32), aligned(2)));
    return (v16)(__builtin_convertvector(*(const v16h*)p, v16u) << 16);
}

static inline void store_bf16(bf16* p, v16 v) {  // round to nearest even; finite values
    typedef uint16_t v16h __attribute__((vector_size(32)));
    typedef v16h v16h_unaligned __attribute__((aligned(2)));
    v16u u = (v16u)v;
    *(v16h_unaligned*)p = __builtin_convertvector((u + 0x7fff + ((u >> 16) & 1)) >> 16, v16h);
}

// 32 numbers as bfloat16, rounded as store_bf16 does, except that numbers below 2^-126 become zeros.
static inline v16u to_bf16(v16 low, v16 high) {
#if defined(__AVX512BF16__)
    return (v16u)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    bf16 numbers[2 * LANES];
    v16u result;
    store_bf16(numbers, low);
    store_bf16(numbers + LANES, high);
    memcpy(&result, numbers, sizeof result);
    return result;
#endif
}

// Exact, subnormal numbers included; no infinities.
static inline float from_float16(float16 x) {
    const uint32_t magnitude = (uint32_t)(x & 0x7fff) << 13, sign = (uint32_t)(x & 0x8000) << 16;
    float f;
    memcpy(&f, &magnitude, 4);
    f *= 0x1p112f;
    return sign ? -f : f;
}

// The 8 numbers at p, each twice.
static inline v16 load_float16_twice(const float16* p) {
#if defined(__AVX512BF16__)
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
    return (v16)_mm512_permutexvar_ps(twice, _mm512_castps256_ps512(values));
#else
    v16 values;
    for (int i = 0; i < LANES; i++) values[i] = from_float16(p[i / 2]);
    return values;
#endif
}

static inline v16 load_int8(const int8_t* p) {
#if defined(__AVX512BF16__)
    return (v16)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
#else
    typedef int8_t v16b __attribute__((vector_size(16), aligned(1)));
    return __builtin_convertvector(*(const v16b*)p, v16);
#endif
}

static inline v16u load_words(const void* p) {
    typedef v16u v16u_unaligned __attribute__((aligned(1)));
    return *(const v16u_unaligned*)p;
}

// The lowest four bits of each word.
static inline v16 low_nibbles(v16u words) {
#if defined(__AVX512BF16__)
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (v16)_mm512_permutexvar_ps((__m512i)words, numbers);  // the other bits do not count
#else
    return __builtin_convertvector((v16i)(words & 15), v16);
#endif
}

// acc[i] += w[i][0] * x[0] + w[i][1] * x[1] for 16 pairs of bfloat16.
static inline v16 dot_pairs(v16 acc, v16u w, uint32_t x) {
#if defined(__AVX512BF16__)
    return (v16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32(x));
#else
    acc += (v16)(w << 16) * to_float(x & 0xffff);
    return acc + (v16)(w & 0xffff0000u) * to_float(x >> 16);
#endif
}

static inline v16 dot_pairs(v16 acc, const bf16* w, uint32_t x) { return dot_pairs(acc, load_words(w), x); }

// exp(x) for x <= 0, relative error below 2e-7.
static inline v16 exp_nonpositive(v16 x) {
    x = x < -87.0f ? splat(-87.0f) : x;
    v16 scaled = x * 1.44269504088896f;
    v16i exponent = __builtin_convertvector(scaled - 0.5f, v16i);  // toward zero: nearest for x <= 0
    v16 whole = __builtin_convertvector(exponent, v16);
    v16 r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    v16 p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (v16)((exponent + 127) << 23);
}
