// Sixteen floats at a time: loads, conversions, dot products of bfloat16 pairs, exp.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "wide.h"

typedef uint16_t bf16;
typedef uint16_t float16;  // IEEE binary16
typedef uint16_t v16h __attribute__((vector_size(32)));
typedef uint16_t v32h __attribute__((vector_size(64)));

constexpr int LANES = 16;
constexpr int BLOCK = 16;

// Lines of `count` things to read, into the second-level cache.
template <class T>
static inline void prefetch(const T* from, int64_t count = 1) {
    for (int64_t i = 0; i < count * (int64_t)sizeof(T); i += 64) __builtin_prefetch((const char*)from + i, 0, 2);
}

static inline v16 load(const float* p) {
    typedef part unaligned __attribute__((aligned(4), may_alias));
    return from_parts([&](int i) { return (part) * (const unaligned*)(p + i); });
}

static inline void store(float* p, v16 v) {
    typedef part unaligned __attribute__((aligned(4), may_alias));
    each_part(v, [&](part x, int i) { *(unaligned*)(p + i) = x; });
}

static inline v16 splat(float x) { return x - v16{}; }

static inline float sum(v16 v) {  // fixed tree: halves are added, then their halves
#if REGISTER_BYTES == 64
    return _mm512_reduce_add_ps((__m512)v);
#else
    float s[16];
    store(s, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
#endif
}

// Number by number the larger one, b if either is no number.
static inline v16 larger(v16 a, v16 b) {
#if REGISTER_BYTES == 64
    return (v16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return select(a > b, a, b);
#endif
}

static inline v16 absolute(v16 v) { return as_floats(as_words(v) & 0x7fffffff); }

static inline float largest_of(v16 v) {
#if REGISTER_BYTES == 64
    return _mm512_reduce_max_ps((__m512)v);
#else
    float s[16];
    store(s, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] = s[i] > s[i + width] ? s[i] : s[i + width];
    return s[0];
#endif
}

static inline int32_t total_of(v16i v) {
#if REGISTER_BYTES == 64
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t total = 0;
    each_part(v, [&](part_i x, int) {
        for (int j = 0; j < PART_LANES; j++) total += x[j];
    });
    return total;
#endif
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

// Exact, subnormal numbers included; no infinities.
static inline float from_float16(float16 x) {
    const uint32_t magnitude = (uint32_t)(x & 0x7fff) << 13, sign = (uint32_t)(x & 0x8000) << 16;
    float f;
    memcpy(&f, &magnitude, 4);
    f *= 0x1p112f;
    return sign ? -f : f;
}

static inline v16 load_float16(const float16* p) {
#if REGISTER_BYTES == 64
    return (v16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif REGISTER_BYTES == 32
    return from_parts([&](int i) { return (part)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + i))); });
#else
    return from_parts([&](int i) {
        return part{from_float16(p[i]), from_float16(p[i + 1]), from_float16(p[i + 2]), from_float16(p[i + 3])};
    });
#endif
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

// Pairs of these, rounded as above, except that AVX512_BF16 makes zeros of numbers below 2^-126.
static inline v16u to_bf16_words(v16 even, v16 odd) {
#if defined(__AVX512BF16__)
    const v32h turns = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return (v16u)_mm512_permutexvar_epi16((__m512i)turns, (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
#else
    return (rounded_words(even) >> 16) + (rounded_words(odd) & 0xffff0000u);
#endif
}

// The lowest four bits of each word.
static inline v16 low_nibbles(v16u words) {
#if REGISTER_BYTES == 64
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (v16)_mm512_permutexvar_ps((__m512i)words, numbers);  // the other bits do not count
#else
    return to_floats(words & 15);
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

#if defined(__x86_64__)
// w[i][0] * x[0] + w[i][1] * x[1] for 16 pairs of whole numbers of sixteen bits.
static inline v16i dot_shorts(v16u w, uint32_t x) {
    return map(w, [=](part_u part) {
#if REGISTER_BYTES == 64
        return (part_i)_mm512_madd_epi16((__m512i)part, _mm512_set1_epi32(x));
#elif REGISTER_BYTES == 32
        return (part_i)_mm256_madd_epi16((__m256i)part, _mm256_set1_epi32(x));
#else
        return (part_i)_mm_madd_epi16((__m128i)part, _mm_set1_epi32(x));
#endif
    });
}
#endif

// acc[i] += w[i][0] * x[0] + ... + w[i][3] * x[3] for 16 quads of weights from 0 to 255 and one of inputs from -127 to 127.
static inline v16i dot_quads(v16i acc, v16u w, uint32_t x) {
#if defined(__AVX512VNNI__)
    return (v16i)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, _mm512_set1_epi32(x));
#elif defined(__AVXVNNI__) && REGISTER_BYTES == 32
    const __m256i quad = _mm256_set1_epi32(x);
    return {(part_i)_mm256_dpbusd_avx_epi32((__m256i)acc.low, (__m256i)w.low, quad),
            (part_i)_mm256_dpbusd_avx_epi32((__m256i)acc.high, (__m256i)w.high, quad)};
#elif defined(__x86_64__)
    const auto shorts = [](uint32_t bytes) { return (uint16_t)(int8_t)bytes | (uint32_t)(int8_t)(bytes >> 16) << 16; };
    return acc + dot_shorts(w & 0x00ff00ffu, shorts(x)) + dot_shorts((w >> 8) & 0x00ff00ffu, shorts(x >> 8));
#else
    for (int i = 0; i < 32; i += 8) acc = acc + as_ints((w >> i) & 255) * (int8_t)(x >> i);
    return acc;
#endif
}

// The whole numbers nearest to numbers from -127 to 127.
static inline v16i nearest(v16 v) {
    return as_ints(v + 12582912.0f) - 0x4b400000;  // 1.5 * 2^23: below it a float has no fraction
}

// The lowest byte of each.
static inline void store_bytes(int8_t* p, v16i v) {
#if REGISTER_BYTES == 64
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8((__m512i)v));
#else
    each_part(v, [&](part_i x, int i) {
        for (int j = 0; j < PART_LANES; j++) p[i + j] = x[j];
    });
#endif
}

// exp(x) for x <= 0, relative error below 2e-7.
static inline v16 exp_nonpositive(v16 x) {
    x = larger(splat(-87.0f), x);
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
