// How the weights of a linear lie in memory.
//
// Every format cuts a linear into groups of 32 outputs, and a group into blocks of 32 inputs: a thread reads its
// share of a linear as one stream. Quantised blocks are unpacked (unpack.h) into the lines of a bfloat16 block, so
// all formats are summed by the same instructions in the same order.
#pragma once
#include <cstdint>

#include "vector.h"

constexpr int GROUP = 2;                          // lines of 16 outputs that lie together
constexpr int GROUP_OUTPUTS = GROUP * LANES;
constexpr int BLOCK_INPUTS = 32;
constexpr int BLOCK_PAIRS = BLOCK_INPUTS / 2;
constexpr int64_t PAIR_SIZE = GROUP_OUTPUTS * 2;  // weights of a pair of inputs

// Mirrors Format in layout.py.
enum Format : int64_t { BFLOAT16, INT8, INT4 };

// For each pair of inputs 32 outputs' pairs are two 64-byte lines. The last block of a group may be half a block.
struct Bfloat16Block {
    bf16 lines[BLOCK_PAIRS][PAIR_SIZE];
};

// weight = scale * q, rounded to bfloat16. Written by quantise.py, as is Int4Block.
struct Int8Block {
    float16 scale[GROUP_OUTPUTS];
    int8_t q[BLOCK_PAIRS][PAIR_SIZE];
};

// weight = scale * q + minimum, rounded to bfloat16. Eight pairs of inputs in the eight nibbles of a word, the lowest
// first; the words are two times the 64 weights of a pair.
struct Int4Block {
    float16 scale[GROUP_OUTPUTS], minimum[GROUP_OUTPUTS];
    uint32_t q[BLOCK_PAIRS / 8][PAIR_SIZE];
};

static_assert(sizeof(Int8Block) == 1088 && sizeof(Int4Block) == 640, "quantise.py writes them");

// Mirrors WeightsStruct in layout.py.
struct Weights {
    const void* data;
    int64_t format;

    int64_t block_bytes() const {
        return format == INT8 ? sizeof(Int8Block) : format == INT4 ? sizeof(Int4Block) : sizeof(Bfloat16Block);
    }
    const char* group(int64_t index, int64_t inputs) const {
        return (const char*)data + index * inputs * block_bytes() / BLOCK_INPUTS;
    }
};
