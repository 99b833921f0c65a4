// Reading blocks of weights pair by pair, as the two lines of bfloat16 that are multiplied. Quantised weights are
// computed in float32 and rounded once, to nearest even.
#pragma once
#include "vector.h"
#include "weights.h"

struct Bfloat16Reader {
    typedef Bfloat16Block Block;
    const bf16* line;
    explicit Bfloat16Reader(const Block& block) : line(block.lines[0]) {}
    void next(v16u* lines) {
        for (int b = 0; b < GROUP; b++, line += 2 * LANES) lines[b] = load_words(line);
    }
};

constexpr int BLOCKS_AHEAD = 6;  // what is fetched ahead of what is read

// The scale and minimum of 32 outputs: weight = scale * q + minimum.
struct Range {
    v16 scale[GROUP], minimum[GROUP];
    explicit Range(const Int8Block& block) {
        for (int b = 0; b < GROUP; b++) {
            scale[b] = load_float16(block.scale + b * LANES);
            minimum[b] = scale[b] * -128.0f;
        }
    }
    explicit Range(const Int4Block& block) {
        for (int b = 0; b < GROUP; b++) {
            scale[b] = load_float16(block.scale + b * LANES);
            minimum[b] = load_float16(block.minimum + b * LANES);
        }
    }
};

// Of each word's numbers the one at an input's place.
template <class Block>
static inline v16 numbers(v16u words, int input) {
    if (Block::WORD_INPUTS == 4) return to_floats((words >> (8 * input)) & 255);
    return low_nibbles(words >> (input < 4 ? 8 * input : 8 * input - 28));
}

template <class QuantisedBlock>
struct QuantisedReader {
    typedef QuantisedBlock Block;
    const Words* q;
    const Range range;
    int input = 0;  // within the words
    v16u words[GROUP];
    explicit QuantisedReader(const Block& block) : q(block.q), range(block) {}
    void next(v16u* lines) {
        for (int b = 0; b < GROUP; b++) {
            if (input == 0) words[b] = load_words((*q)[b]);
            // Exact products (11 bits by 8): fused or not, the sum is rounded once.
            const v16 even = numbers<Block>(words[b], input) * range.scale[b] + range.minimum[b];
            const v16 odd = numbers<Block>(words[b], input + 1) * range.scale[b] + range.minimum[b];
            lines[b] = to_bf16_words(even, odd);
        }
        input = (input + 2) % Block::WORD_INPUTS;
        if (input == 0) q++;
    }
};
typedef QuantisedReader<Int8Block> Int8Reader;
typedef QuantisedReader<Int4Block> Int4Reader;

template <class Reader>
static void unpack(const typename Reader::Block* from, int64_t count, Bfloat16Block* to) {
    for (int64_t i = 0; i < count; i++) {
        prefetch(from + i + BLOCKS_AHEAD);
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
