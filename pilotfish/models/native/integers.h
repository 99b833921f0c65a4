// Quantised weights times inputs of eight bits: the sums of a block are whole numbers.
// Inputs are rounded in blocks of 32 with a scale of their own, as llama.cpp does.
#pragma once
#include <algorithm>

#include "ahead.h"
#include "unpack.h"
#include "vector.h"
#include "weights.h"

// 32 inputs of a row: input = scale * q.
struct InputBlock {
    float scale, sum;  // sum of the inputs, as rounded
    int32_t centre;    // -128 times the sum of q: what turns weights from 0 to 255 into -128 to 127
    uint32_t q[BLOCK_INPUTS / 4];
};

// x and out are [inputs] and [inputs / 32][stride].
static void round_inputs(const bf16* x, int64_t inputs, InputBlock* out, int64_t stride) {
    for (int64_t i = 0; i < inputs; i += BLOCK_INPUTS, out += stride) {
        const v16 a = load_bf16(x + i), b = load_bf16(x + i + LANES);
        const float largest = largest_of(larger(absolute(a), absolute(b)));
        const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
        const v16i low = nearest(a * inverse), high = nearest(b * inverse);
        store_bytes((int8_t*)out->q, low);
        store_bytes((int8_t*)out->q + LANES, high);
        out->scale = largest / 127.0f;
        const int32_t total = total_of(low + high);
        out->sum = out->scale * total;
        out->centre = -128 * total;
    }
}

template <class QuantisedBlock>
struct Integers {
    typedef QuantisedBlock Block;
    typedef InputBlock Input;
    static constexpr int MAX_ROWS = REGISTER_BYTES == 64 ? 8 : 3;  // weights and their scales want registers, too
    static constexpr bool IS_CENTRED = Block::WORD_INPUTS == 4;    // without a minimum of its own

    // The blocks of all rows lie together, so that an address is a constant away from the next row's.
    static const InputBlock* at(const InputBlock* x, int64_t stride, int64_t row, int64_t input) {
        return x + input / BLOCK_INPUTS * stride + row;
    }

    // See Floats::multiply (linear.h). x is [inputs / 32][stride], stride the number of all rows.
    // Of many rows the bound is arithmetic: a row's 16 outputs take 8 integer products a block and 2 or 3 products of floats,
    // all on the two units of a core that multiply.
    template <int ROWS>
    static void multiply(const void* blocks, int64_t inputs, const InputBlock* x, int64_t stride, Sums* sums, const Ahead& ahead) {
        constexpr int QUADS = Block::WORD_INPUTS / 4;
        const int64_t count = inputs / BLOCK_INPUTS;
        const Block* block = (const Block*)blocks;
        for (int64_t k = 0; k < count; k++, block++, x += stride) {
            prefetch(ahead.of_block(k), ahead.block_step);
            v16i acc[ROWS][GROUP];
            for (int r = 0; r < ROWS; r++)
                for (int b = 0; b < GROUP; b++) acc[r][b] = v16i{} + (IS_CENTRED ? x[r].centre : 0);
            for (int word = 0; word < BLOCK_INPUTS / Block::WORD_INPUTS; word++) {
                v16u weights[QUADS][GROUP];
                for (int b = 0; b < GROUP; b++) {
                    const v16u words = load_words(block->q[word][b]);
                    weights[0][b] = QUADS == 1 ? words : words & 0x0f0f0f0f;
                    if (QUADS == 2) weights[QUADS - 1][b] = (words >> 4) & 0x0f0f0f0f;
                }
                // One load of a quad of inputs for all lines: loads are what there is least of.
                for (int r = 0; r < ROWS; r++)
                    for (int i = 0; i < QUADS; i++)
                        for (int b = 0; b < GROUP; b++)
                            acc[r][b] = dot_quads(acc[r][b], weights[i][b], x[r].q[word * QUADS + i]);
            }
            const Range range(*block);
            for (int r = 0; r < ROWS; r++) {
                for (int b = 0; b < GROUP; b++) {
                    // One sum at a time: there is only one way to fuse each, for any number of rows.
                    sums[r].of[b] += to_floats(acc[r][b]) * (range.scale[b] * x[r].scale);
                    if (!IS_CENTRED) sums[r].of[b] += range.minimum[b] * x[r].sum;
                }
            }
        }
    }
};
