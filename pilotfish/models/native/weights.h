// How the weights of a linear lie in memory, and how they become the bfloat16 lines that are multiplied.
//
// Every format cuts a linear into groups of 32 outputs and a group into blocks of 32 inputs. A block becomes
// lines [16 pairs of inputs][2][16 outputs][2], so all formats are summed by the same instructions in the same order.
#pragma once
#include <cstdint>

#include "vector.h"

constexpr int GROUP = 2;         // lines of 16 outputs that lie together
constexpr int BLOCK_PAIRS = 16;  // pairs of inputs in a block
constexpr int64_t PAIR_SIZE = GROUP * 2 * LANES;  // weights of a pair of inputs

// Mirrors Format in layout.py.
enum Format : int64_t { BFLOAT16 };

// Mirrors WeightsStruct in layout.py.
struct Weights {
    const void* data;
    int64_t format;
};

// Where weight [n][k] lies in the bfloat16 layout.
static inline int64_t packed_index(int64_t n, int64_t k, int64_t inputs, int64_t stride, int64_t offset) {
    const int64_t block = n / LANES * stride + offset, group = block / GROUP;
    return ((group * (inputs / 2) + k / 2) * GROUP + block % GROUP) * 2 * LANES + n % LANES * 2 + k % 2;
}

// The weights [inputs] of one output.
static void load_output(const Weights& w, int64_t output, int64_t inputs, float* out) {
    for (int64_t k = 0; k < inputs; k++) out[k] = to_float(((const bf16*)w.data)[packed_index(output, k, inputs, 1, 0)]);
}
