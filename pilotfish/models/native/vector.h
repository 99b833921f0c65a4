// Sixteen floats at a time: loads, conversions, dot products of bfloat16 pairs, exp.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "wide.h"

typedef uint16_t bf16;
typedef uint16_t float16;  // IEEE binary16
typedef uint16_t v16h __attribute__((vector_size(32)));

constexpr int LANES = 16;
constexpr int BLOCK = 16;

static inline v16 load(const float* p) {
    typedef part unaligned __attribute__((aligned(4), may_alias));
    return from_parts([&](int i) { return (part) * (const unaligned*)(p + i); });
}

static inline void store(float* p, v16 v) {
    typedef part unaligned __attribute__((aligned(4), may_alias));
    each_part(v, [&](part x, int i) { *(unaligned*)(p + i) = x; });
}

static inline v16 splat(float x) { return x - v16{}; }

static inline float sum(v16 v) {  // fixed tree
    float s[16];
    store(s, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}

static inline float largest_of(v16 v) {
    float s[16];
    store(s, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] = s[i] > s[i + width] ? s[i] : s[i + width];
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
    return as_floats(from_parts([&](int i) {
#if REGISTER_BYTES == 64
        return (part_u)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(p + i)));
#elif REGISTER_BYTES == 32
        return (part_u)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)(p + i)));
#else
        return part_u{p[i], p[i + 1], p[i + 2], p[i + 3]};
#endif
    }) << 16);
}

// The upper halves are the numbers as bfloat16, rounded to nearest even; finite values.
static inline v16u rounded_words(v16 v) {
    const v16u u = as_words(v);
    return u + 0x7fff + ((u >> 16) & 1);
}

static inline v16h to_bf16(v16 v) {
    const v16u rounded = rounded_words(v) >> 16;
#if REGISTER_BYTES == 64
    return (v16h)_mm512_cvtepi32_epi16((__m512i)rounded);
#elif REGISTER_BYTES == 32
    const __m256i halves = _mm256_packus_epi32((__m256i)rounded.low, (__m256i)rounded.high);
    return (v16h)_mm256_permute4x64_epi64(halves, 0xd8);  // it packed each 16 bytes by themselves
#else
    v16h result;
    each_part(rounded, [&](part_u x, int i) {
        for (int j = 0; j < PART_LANES; j++) result[i + j] = x[j];
    });
    return result;
#endif
}

static inline void store_bf16(bf16* p, v16 v) {
    typedef v16h unaligned __attribute__((aligned(2), may_alias));
    *(unaligned*)p = to_bf16(v);
}

// 32 numbers as bfloat16, rounded as above, except that AVX512_BF16 makes zeros of numbers below 2^-126.
static inline v16u to_bf16(v16 low, v16 high) {
#if defined(__AVX512BF16__)
    return (v16u)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#elif REGISTER_BYTES == 64
    return (v16u)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)to_bf16(low)), (__m256i)to_bf16(high), 1);
#elif REGISTER_BYTES == 32
    return {(part_u)to_bf16(low), (part_u)to_bf16(high)};
#else
    const v16h numbers[2] = {to_bf16(low), to_bf16(high)};
    v16u result;
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
#if REGISTER_BYTES == 64
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
    return (v16)_mm512_permutexvar_ps(twice, _mm512_castps256_ps512(values));
#elif REGISTER_BYTES == 32
    const __m256i low = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), high = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
    return {(part)_mm256_permutevar8x32_ps(values, low), (part)_mm256_permutevar8x32_ps(values, high)};
#else
    float values[LANES];
    for (int i = 0; i < LANES; i++) values[i] = from_float16(p[i / 2]);
    return load(values);
#endif
}

static inline v16 load_int8(const int8_t* p) {
    return to_floats(from_parts([&](int i) {
#if REGISTER_BYTES == 64
        return (part_i)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(p + i)));
#elif REGISTER_BYTES == 32
        return (part_i)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + i)));
#else
        return part_i{p[i], p[i + 1], p[i + 2], p[i + 3]};
#endif
    }));
}

static inline v16u load_words(const void* p) {
    typedef part_u unaligned __attribute__((aligned(1), may_alias));
    return from_parts([&](int i) { return (part_u) * (const unaligned*)((const uint32_t*)p + i); });
}

static inline void store_words(void* p, v16u v) {
    typedef part_u unaligned __attribute__((aligned(1), may_alias));
    each_part(v, [&](part_u x, int i) { *(unaligned*)((uint32_t*)p + i) = x; });
}

// Of the words' pairs of bfloat16 the first ones, the second ones.
static inline v16 even_bf16(v16u words) { return as_floats(words << 16); }
static inline v16 odd_bf16(v16u words) { return as_floats(words & 0xffff0000u); }

// Pairs of these, rounded as above.
static inline v16u to_bf16_words(v16 even, v16 odd) {
    return (rounded_words(even) >> 16) + (rounded_words(odd) & 0xffff0000u);
}

// The lowest four bits of each word.
static inline v16 low_nibbles(v16u words) {
#if REGISTER_BYTES == 64
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (v16)_mm512_permutexvar_ps((__m512i)words, numbers);  // the other bits do not count
#else
    return map(words & 15, [](part_u x) { return __builtin_convertvector((part_i)x, part); });
#endif
}

// acc[i] += w[i][0] * x[0] + w[i][1] * x[1] for 16 pairs of bfloat16.
static inline v16 dot_pairs(v16 acc, v16u w, uint32_t x) {
#if defined(__AVX512BF16__)
    return (v16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32(x));
#else
    const v16u both = x + v16u{};  // one load: the processor spreads it, and cuts it in vectors
    acc += even_bf16(w) * even_bf16(both);
    return acc + odd_bf16(w) * odd_bf16(both);
#endif
}

static inline v16 dot_pairs(v16 acc, const bf16* w, uint32_t x) { return dot_pairs(acc, load_words(w), x); }

// exp(x) for x <= 0, relative error below 2e-7.
static inline v16 exp_nonpositive(v16 x) {
    x = select(x < -87.0f, splat(-87.0f), x);
    v16 scaled = x * 1.44269504088896f;
    v16i exponent = truncate(scaled - 0.5f);  // toward zero: nearest for x <= 0
    v16 whole = to_floats(exponent);
    v16 r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    v16 p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * as_floats((exponent + 127) << 23);
}
