// Quantised blocks as bfloat16 lines: each weight is computed in float32 and rounded once, to nearest even.
#pragma once
#include <vector>

#include "vector.h"
#include "weights.h"

// Lanes of the four vectors that make the two lines of a pair: 8 outputs, each with both inputs of the pair.
constexpr int PARTS = PAIR_SIZE / LANES;

// [32] numbers of outputs as the four vectors.
static inline void spread(const float16* from, v16* parts) {
    for (int i = 0; i < PARTS; i++) parts[i] = load_float16_twice(from + i * LANES / 2);
}

static inline void store_lines(bf16* lines, const v16* parts) {
    for (int b = 0; b < GROUP; b++) store_bf16(lines + b * 2 * LANES, parts[2 * b], parts[2 * b + 1]);
}

static void unpack(const Int8Block& block, bf16* lines) {
    v16 scale[PARTS], weights[PARTS];
    spread(block.scale, scale);
    for (int pair = 0; pair < BLOCK_PAIRS; pair++) {
        for (int i = 0; i < PARTS; i++) weights[i] = load_int8(block.q[pair] + i * LANES) * scale[i];
        store_lines(lines + pair * PAIR_SIZE, weights);
    }
}

static void unpack(const Int4Block& block, bf16* lines) {
    v16 scale[PARTS], minimum[PARTS], weights[PARTS];
    v16u words[PARTS];
    spread(block.scale, scale);
    spread(block.minimum, minimum);
    for (int half = 0; half < BLOCK_PAIRS / 8; half++) {
        for (int i = 0; i < PARTS; i++) words[i] = load_words(block.q[half] + i * LANES);
        for (int pair = 0; pair < 8; pair++) {
            // Exact products (11 bits by 4): fused or not, the sum is rounded once.
            for (int i = 0; i < PARTS; i++) weights[i] = nibbles(words[i], 4 * pair) * scale[i] + minimum[i];
            store_lines(lines + (half * 8 + pair) * PAIR_SIZE, weights);
        }
    }
}

static inline void unpack(int64_t format, const void* block, bf16* lines) {
    if (format == INT8) unpack(*(const Int8Block*)block, lines);
    else unpack(*(const Int4Block*)block, lines);
}

// A group of quantised weights as one of bfloat16 weights, in lines.
static Weights unpack_group(const Weights& w, int64_t group, int64_t inputs, std::vector<bf16>& lines) {
    lines.resize(inputs * GROUP_OUTPUTS);
    const char* block = w.group(group, inputs);
    for (int64_t k = 0; k < inputs; k += BLOCK_INPUTS, block += w.block_bytes())
        unpack(w.format, block, lines.data() + k * GROUP_OUTPUTS);
    return {lines.data(), BFLOAT16};
}
