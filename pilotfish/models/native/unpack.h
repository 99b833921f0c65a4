// Reading blocks of weights pair by pair, as the two lines of bfloat16 that are multiplied. Quantised weights are
// computed in float32 and rounded once, to nearest even.
#pragma once
#include "vector.h"
#include "weights.h"

// Vectors that make the lines of a pair: 8 outputs each, with both inputs of the pair.
constexpr int PARTS = PAIR_SIZE / LANES;

struct Bfloat16Reader {
    typedef Bfloat16Block Block;
    const bf16* line;
    explicit Bfloat16Reader(const Block& block) : line(block.lines[0]) {}
    void next(v16u* lines) {
        for (int b = 0; b < GROUP; b++, line += 2 * LANES) lines[b] = load_words(line);
    }
};

struct Int8Reader {
    typedef Int8Block Block;
    const int8_t* q;
    v16 scale[PARTS];
    explicit Int8Reader(const Block& block) : q(block.q[0]) {
        for (int i = 0; i < PARTS; i++) scale[i] = load_float16_twice(block.scale + i * LANES / 2);
    }
    void next(v16u* lines) {
        v16 weights[PARTS];
        for (int i = 0; i < PARTS; i++, q += LANES) weights[i] = load_int8(q) * scale[i];
        for (int b = 0; b < GROUP; b++) lines[b] = to_bf16(weights[2 * b], weights[2 * b + 1]);
    }
};

struct Int4Reader {
    typedef Int4Block Block;
    const uint32_t* q;
    int left = 0;  // pairs in words
    v16u words[PARTS];
    v16 scale[PARTS], minimum[PARTS];
    explicit Int4Reader(const Block& block) : q(block.q[0]) {
        for (int i = 0; i < PARTS; i++) {
            scale[i] = load_float16_twice(block.scale + i * LANES / 2);
            minimum[i] = load_float16_twice(block.minimum + i * LANES / 2);
        }
    }
    void next(v16u* lines) {
        if (left-- == 0) {
            for (int i = 0; i < PARTS; i++, q += LANES) words[i] = load_words(q);
            left = 7;
        }
        v16 weights[PARTS];
        for (int i = 0; i < PARTS; i++) {
            // An exact product (11 bits by 4): fused or not, the sum is rounded once.
            weights[i] = low_nibbles(words[i]) * scale[i] + minimum[i];
            words[i] >>= 4;
        }
        for (int b = 0; b < GROUP; b++) lines[b] = to_bf16(weights[2 * b], weights[2 * b + 1]);
    }
};

template <class Reader>
static void unpack(const typename Reader::Block* from, int64_t count, Bfloat16Block* to) {
    for (int64_t i = 0; i < count; i++) {
        Reader reader(from[i]);
        for (int pair = 0; pair < BLOCK_PAIRS; pair++) {
            v16u lines[GROUP];
            reader.next(lines);
            for (int b = 0; b < GROUP; b++) store_words(to[i].lines[pair] + b * 2 * LANES, lines[b]);
        }
    }
}

static void unpack(int64_t format, const void* from, int64_t count, Bfloat16Block* to) {
    if (format == INT8) unpack<Int8Reader>((const Int8Block*)from, count, to);
    else unpack<Int4Reader>((const Int4Block*)from, count, to);
}

// The weights [inputs] of one output.
static void load_output(const Weights& w, int64_t output, int64_t inputs, float* out) {
    const char* data = w.group(output / GROUP_OUTPUTS, inputs);
    const int64_t n = output % GROUP_OUTPUTS;
    alignas(64) Bfloat16Block unpacked;
    for (int64_t k = 0; k < inputs; k++) {
        const int64_t i = k % BLOCK_INPUTS;
        const char* from = data + k / BLOCK_INPUTS * w.block_bytes();
        if (w.format != BFLOAT16 && i == 0) unpack(w.format, from, 1, &unpacked);
        const Bfloat16Block& block = w.format == BFLOAT16 ? *(const Bfloat16Block*)from : unpacked;
        out[k] = to_float(block.lines[i / 2][n * 2 + i % 2]);
    }
}
