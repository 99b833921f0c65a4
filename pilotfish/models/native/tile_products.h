// Linears of bfloat16 weights by tiles: 16 rows, 32 inputs and 16 outputs at a time, in the tiles' order of sums (tiles.h).
#pragma once
#include <algorithm>

#include "ahead.h"
#include "tiles.h"
#include "unpack.h"
#include "weights.h"

#if defined(PILOTFISH_TILES)
// A block's lines for 16 outputs are a tile of weights as they lie.
constexpr int64_t LINE_BYTES = PAIR_SIZE * sizeof(bf16);
constexpr int64_t TILE_PAIR_ROWS = 2 * TILE_ROWS;

// One or two tiles of rows: [16] rows of inputs, stride bytes apart, and where their sums go.
struct RowTiles {
    const char* inputs[2];
    int64_t stride;
    Sums* sums[2];
};

// between(0) to between(3) run between loads and products.
template <class T, int NUM, class Between>
static inline void multiply_block(const char* lines, const RowTiles& rows, int64_t at, const Between& between) {
    T::template load<4>(rows.inputs[0] + at, rows.stride);
    T::template load<6>(lines, LINE_BYTES);
    T::template dot<0, 4, 6>();
    between(0);
    T::template load<7>(lines + TILE_ROW_BYTES, LINE_BYTES);
    T::template dot<1, 4, 7>();
    between(1);
    if (NUM == 2) T::template load<5>(rows.inputs[1] + at, rows.stride);
    if (NUM == 2) T::template dot<2, 5, 6>();
    between(2);
    if (NUM == 2) T::template dot<3, 5, 7>();
    between(3);
}

// Half a block, the last of a group: beside zeros in place of what lies behind.
template <class T, int NUM>
static void multiply_half_block(const char* lines, const RowTiles& rows, int64_t at, int tile_rows) {
    alignas(64) char weights[sizeof(Bfloat16Block)] = {}, inputs[2][TILE_ROWS][TILE_ROW_BYTES] = {};
    memcpy(weights, lines, sizeof(weights) / 2);
    for (int t = 0; t < NUM; t++)
        for (int r = 0; r < tile_rows; r++) memcpy(inputs[t][r], rows.inputs[t] + r * rows.stride + at, TILE_ROW_BYTES / 2);
    const RowTiles padded{{inputs[0][0], inputs[1][0]}, TILE_ROW_BYTES, {}};
    multiply_block<T, NUM>(weights, padded, 0, [](int) {});
}

// Sums of one or two tiles of rows for a group. first_block: of those that `ahead` counts.
template <class T, int NUM>
static void multiply_tiles(const char* lines, int64_t inputs, const RowTiles& rows, int tile_rows, const Ahead& ahead, int64_t first_block) {
    const int64_t num_blocks = inputs / BLOCK_INPUTS, quarter = ahead.block_step / 4;
    T::template zero<0>();
    T::template zero<1>();
    if (NUM == 2) T::template zero<2>();
    if (NUM == 2) T::template zero<3>();
    for (int64_t k = 0; k < num_blocks; k++, lines += sizeof(Bfloat16Block)) {
        const char* fetched = ahead.of_block(first_block + k);
        multiply_block<T, NUM>(lines, rows, k * TILE_ROW_BYTES, [&](int part) { prefetch(fetched + part * quarter, quarter); });
    }
    if (inputs % BLOCK_INPUTS) multiply_half_block<T, NUM>(lines, rows, num_blocks * TILE_ROW_BYTES, tile_rows);
    T::template store<0>(&rows.sums[0]->of[0], sizeof(Sums));
    T::template store<1>(&rows.sums[0]->of[1], sizeof(Sums));
    if (NUM == 2) T::template store<2>(&rows.sums[1]->of[0], sizeof(Sums));
    if (NUM == 2) T::template store<3>(&rows.sums[1]->of[1], sizeof(Sums));
}

// Sums [count][rows] of all rows for `count` groups that lie together. x is [rows][inputs]. distance: how far ahead of
// what is multiplied weights are fetched, if that is one tile of rows or two; of more, each fetches its share of what
// lies behind the groups. 0: none are fetched.
// Tiles come in pairs, rows outermost: the weights stay in the second-level cache, and the rows in the first. The last
// tiles overlap those before them, so that none is shorter unless there are fewer than 16 rows: a sum that is computed
// twice is the same twice.
template <class T>
static void multiply_by_tiles(const void* groups, int64_t count, int64_t inputs, const bf16* x, int64_t rows, Sums* sums, int64_t distance) {
    const int64_t group_bytes = inputs * LINE_BYTES / 2, bytes = count * group_bytes, stride = inputs * sizeof(bf16);
    const int64_t group_blocks = (inputs + BLOCK_INPUTS - 1) / BLOCK_INPUTS;
    const int64_t turns = (rows + TILE_PAIR_ROWS - 1) / TILE_PAIR_ROWS;
    const int tile_rows = std::min<int64_t>(rows, TILE_ROWS);
    const char* lines = (const char*)groups;
    T::configure(tile_rows);
    for (int64_t t = 0; t < turns; t++) {
        const bool is_pair = rows - t * TILE_PAIR_ROWS > TILE_ROWS;
        const int64_t first = std::max<int64_t>(0, std::min(t * TILE_PAIR_ROWS, rows - (is_pair ? 2 : 1) * TILE_ROWS));
        const int64_t second = is_pair ? std::min(first + TILE_ROWS, rows - TILE_ROWS) : first;
        const Ahead ahead{lines, bytes, lines + bytes, turns == 1 ? distance : bytes + bytes * t / turns,
                          distance ? (int64_t)sizeof(Bfloat16Block) / turns : 0};
        for (int64_t g = 0; g < count; g++) {
            const RowTiles tiles{{(const char*)x + first * stride, (const char*)x + second * stride}, stride,
                                 {sums + g * rows + first, sums + g * rows + second}};
            const auto multiply = is_pair ? multiply_tiles<T, 2> : multiply_tiles<T, 1>;
            multiply(lines + g * group_bytes, inputs, tiles, tile_rows, ahead, g * group_blocks);
        }
    }
}

// In the tiles' order by vectors, for few rows of weights that are unpacked on the way: one of a pair's inputs is zero, so
// that a product of pairs goes on with one of the two chains. Subnormal numbers must be flushed meanwhile.
template <class Reader>
struct TileOrder {
    typedef typename Reader::Block Block;
    typedef bf16 Input;
    static constexpr int MAX_ROWS = 3;

    static const bf16* at(const bf16* x, int64_t stride, int64_t row, int64_t input) { return x + row * stride + input; }

    // See Floats::multiply (linear.h). inputs: whole blocks.
    template <int ROWS>
    static void multiply(const void* blocks, int64_t inputs, const bf16* x, int64_t stride, Sums* sums, const Ahead& ahead) {
        constexpr int64_t PAIR_BYTES = sizeof(Block) / BLOCK_PAIRS;
        const Block* block = (const Block*)blocks;
        for (int64_t k = 0; k < inputs / BLOCK_INPUTS; k++, block++) {
            Reader reader(*block);
            const char* fetched = ahead.of_block(k);
            v16 first[ROWS][GROUP]{}, second[ROWS][GROUP]{};
            for (int pair = 0; pair < BLOCK_PAIRS; pair++, fetched += ahead.block_step / BLOCK_PAIRS) {
                prefetch(fetched, PAIR_BYTES);
                v16u lines[GROUP];
                reader.next(lines);
                for (int r = 0; r < ROWS; r++) {
                    const uint32_t inputs_of_pair = ((const uint32_t*)(x + r * stride))[k * BLOCK_PAIRS + pair];
                    for (int b = 0; b < GROUP; b++) {
                        first[r][b] = dot_pairs(first[r][b], lines[b], inputs_of_pair & 0xffff);
                        second[r][b] = dot_pairs(second[r][b], lines[b], inputs_of_pair & 0xffff0000u);
                    }
                }
            }
            for (int r = 0; r < ROWS; r++)
                for (int b = 0; b < GROUP; b++) sums[r].of[b] += first[r][b] + second[r][b];
        }
    }
};
#endif
