// Which weights a tile of rows fetches from memory while it multiplies others.
#pragma once
#include <cstdint>

#include "vector.h"

// A thread reads weights as one stream, piece by piece. One tile of rows alone fetches a little ahead of what it reads.
// Several tiles read a piece one after the other, and each fetches its share of the next piece: if the first one
// fetched all, memory would rest during the others.
struct Ahead {
    const char* piece;
    int64_t bytes;       // of the piece
    const char* next;    // the piece after it
    int64_t distance;    // from the piece's first byte to what is fetched first
    int64_t block_step;  // what is fetched for each block that is multiplied

    const char* of_block(int64_t k) const {
        const int64_t at = distance + k * block_step;
        return at < bytes ? piece + at : next + (at - bytes);
    }
};
