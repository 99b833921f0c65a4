// How the weights of a linear lie in memory.
//
// Every format cuts a linear into groups of 32 outputs, and a group into blocks of 32 inputs: a thread reads its
// share of a linear as one stream. Quantised blocks are either unpacked (unpack.h) into the lines of a bfloat16 block
// and multiplied as those are, so that nothing is lost, or multiplied as integers with inputs rounded to eight bits
// (integers.h).
#pragma once
#include <cstdint>

#include "vector.h"

constexpr int GROUP = 2;                          // lines of 16 outputs that lie together
constexpr int GROUP_OUTPUTS = GROUP * LANES;
constexpr int BLOCK_INPUTS = 32;
constexpr int BLOCK_PAIRS = BLOCK_INPUTS / 2;
constexpr int64_t PAIR_SIZE = GROUP_OUTPUTS * 2;  // weights of a pair of inputs

// A row's sums for the 32 outputs of a group.
struct Sums {
    v16 of[GROUP];
};

// Mirrors Format in layout.py.
enum Format : int64_t { BFLOAT16, INT8, INT4 };

// For each pair of inputs 32 outputs' pairs are two 64-byte lines. The last block of a group may be half a block.
struct Bfloat16Block {
    bf16 lines[BLOCK_PAIRS][PAIR_SIZE];
};

// The words of 16 outputs that lie together, 32 outputs in all.
typedef uint32_t Words[GROUP][LANES];

// weight = scale * (q - 128), rounded to bfloat16. Four inputs in the bytes of a word, the lowest first. Written by
// quantise.py, as is Int4Block.
struct Int8Block {
    static constexpr int WORD_INPUTS = 4;
    float16 scale[GROUP_OUTPUTS];
    Words q[BLOCK_INPUTS / WORD_INPUTS];
};

// weight = scale * q + minimum, rounded to bfloat16. Eight inputs in the nibbles of a word: the first four in the low
// nibbles of its bytes, the others in the high ones.
struct Int4Block {
    static constexpr int WORD_INPUTS = 8;
    float16 scale[GROUP_OUTPUTS], minimum[GROUP_OUTPUTS];
    Words q[BLOCK_INPUTS / WORD_INPUTS];
};

static_assert(sizeof(Int8Block) == 1088 && sizeof(Int4Block) == 640, "quantise.py writes them");

// Mirrors WeightsStruct in layout.py.
struct Weights {
    const void* data;
    int64_t format;
    int64_t rounds_inputs;  // whether quantised weights are multiplied with inputs of eight bits

    int64_t block_bytes() const {
        return format == INT8 ? sizeof(Int8Block) : format == INT4 ? sizeof(Int4Block) : sizeof(Bfloat16Block);
    }
    const char* group(int64_t index, int64_t inputs) const {
        return (const char*)data + index * inputs * block_bytes() / BLOCK_INPUTS;
    }
};
