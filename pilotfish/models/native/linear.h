// Linears over packed weights (weights.h), and the norm before them.
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>

#include "integers.h"
#include "team.h"
#include "tile_products.h"
#include "unpack.h"
#include "vector.h"
#include "weights.h"

constexpr int MAX_ITEM_GROUPS = 4;  // of an item of work, whose sums are held back to its end
constexpr int UNPACKED_BLOCKS = 4;  // 8 KiB: they stay in the first-level cache
constexpr int PIECE_BLOCKS = 16;    // read by one tile of rows after the other: 32 KiB at most, from the second-level cache

// How far ahead of what is multiplied one tile of rows fetches. Rows that compute for longer between two lines of weights
// leave the memory waiting unless more is asked for; with few rows that much is too much.
template <class Block>
constexpr int64_t prefetch_bytes(int64_t rows) {
    if (sizeof(Block) < sizeof(Bfloat16Block)) return BLOCKS_AHEAD * sizeof(Block);
    return rows < 4 ? 4096 : 6144;
}

// bfloat16 by bfloat16.
template <class Reader>
struct Floats {
    typedef typename Reader::Block Block;
    typedef bf16 Input;
    // Of a tile. Their sums leave vector registers for the weights: 24 of the 32 that AVX-512 has, 12 of 16 elsewhere.
    static constexpr int MAX_ROWS = REGISTER_BYTES == 64 ? 12 : 3;

    static const bf16* at(const bf16* x, int64_t stride, int64_t row, int64_t input) { return x + row * stride + input; }

    // Adds the products of all inputs to the sums of ROWS rows, which share each line of weights. Sums run over the
    // inputs in order, whatever ROWS is. x is [ROWS][stride].
    template <int ROWS>
    static void multiply(const void* blocks, int64_t inputs, const bf16* x, int64_t stride, Sums* sums, const Ahead& ahead) {
        constexpr int64_t PAIR_BYTES = sizeof(Block) / BLOCK_PAIRS;
        const int64_t pairs = inputs / 2, pair_step = ahead.block_step / BLOCK_PAIRS;
        v16 acc[ROWS][GROUP];
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < GROUP; b++) acc[r][b] = sums[r].of[b];
        const Block* block = (const Block*)blocks;
        for (int64_t first = 0; first < pairs; first += BLOCK_PAIRS, block++) {
            Reader reader(*block);
            const int64_t last = std::min<int64_t>(pairs, first + BLOCK_PAIRS);
            const char* fetched = ahead.of_block(first / BLOCK_PAIRS);
            for (int64_t k = first; k < last; k++, fetched += pair_step) {
                prefetch(fetched, PAIR_BYTES);
                v16u lines[GROUP];
                reader.next(lines);
                for (int r = 0; r < ROWS; r++)
                    for (int b = 0; b < GROUP; b++)
                        acc[r][b] = dot_pairs(acc[r][b], lines[b], ((const uint32_t*)(x + r * stride))[k]);
            }
        }
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < GROUP; b++) sums[r].of[b] = acc[r][b];
    }
};

template <class Kernel, int... ROWS>
static auto for_rows(int rows, std::integer_sequence<int, ROWS...>) {
    static constexpr decltype(&Kernel::template multiply<1>) functions[] = {&Kernel::template multiply<ROWS + 1>...};
    return functions[rows - 1];
}

// Kernel::multiply for any number of rows, cut into tiles of about as many. next: what the thread reads then.
template <class Kernel>
static void multiply_rows(const void* blocks, int64_t inputs, const typename Kernel::Input* x, int64_t stride, int64_t rows,
                          Sums* sums, const char* next) {
    constexpr int64_t BLOCK_BYTES = sizeof(typename Kernel::Block);
    const auto piece_bytes = [](int64_t inputs) { return inputs * BLOCK_BYTES / BLOCK_INPUTS; };
    const auto function = [](int64_t rows) { return for_rows<Kernel>(rows, std::make_integer_sequence<int, Kernel::MAX_ROWS>()); };
    const int64_t tiles = (rows + Kernel::MAX_ROWS - 1) / Kernel::MAX_ROWS;
    if (tiles == 1) {
        const Ahead ahead{(const char*)blocks, piece_bytes(inputs), next, prefetch_bytes<typename Kernel::Block>(rows), BLOCK_BYTES};
        return function(rows)(blocks, inputs, x, stride, sums, ahead);
    }
    const int64_t num_blocks = (inputs + BLOCK_INPUTS - 1) / BLOCK_INPUTS, pieces = (num_blocks + PIECE_BLOCKS - 1) / PIECE_BLOCKS;
    const auto first_input = [=](int64_t piece) { return std::min(inputs, num_blocks * piece / pieces * BLOCK_INPUTS); };
    for (int64_t p = 0; p < pieces; p++) {
        const int64_t first = first_input(p), count = first_input(p + 1) - first, bytes = piece_bytes(count);
        const char* piece = (const char*)blocks + piece_bytes(first);
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t r = rows * t / tiles, until = rows * (t + 1) / tiles;
            const Ahead ahead{piece, bytes, p + 1 < pieces ? piece + bytes : next, bytes + bytes * t / tiles, BLOCK_BYTES / tiles};
            function(until - r)(piece, count, Kernel::at(x, stride, r, first), stride, sums + r, ahead);
        }
    }
}

// Sums of all rows for one group. Quantised weights are unpacked as they are multiplied by few rows, which wait for the
// memory, and for more a few blocks at a time.
static void multiply_group(const Weights& w, int64_t group, int64_t inputs, const bf16* x, const InputBlock* rounded,
                           int64_t rows, Sums* sums, const char* next) {
    for (int64_t r = 0; r < rows; r++)
        for (int b = 0; b < GROUP; b++) sums[r].of[b] = v16{};
    const char* blocks = w.group(group, inputs);
    if (w.rounds_inputs) {
        const auto multiply = w.format == INT8 ? multiply_rows<Integers<Int8Block>> : multiply_rows<Integers<Int4Block>>;
        return multiply(blocks, inputs, rounded, rows, rows, sums, next);
    }
    if (w.format == BFLOAT16 || rows < 4) {
        const auto multiply = w.format == INT8   ? multiply_rows<Floats<Int8Reader>>
                              : w.format == INT4 ? multiply_rows<Floats<Int4Reader>>
                                                 : multiply_rows<Floats<Bfloat16Reader>>;
        return multiply(blocks, inputs, x, inputs, rows, sums, next);
    }
    alignas(64) Bfloat16Block unpacked[UNPACKED_BLOCKS];
    constexpr int64_t STEP = UNPACKED_BLOCKS * BLOCK_INPUTS;
    for (int64_t k = 0; k < inputs; k += STEP, blocks += UNPACKED_BLOCKS * w.block_bytes()) {
        const int64_t count = std::min(STEP, inputs - k);
        unpack(w.format, blocks, count / BLOCK_INPUTS, unpacked);
        multiply_rows<Floats<Bfloat16Reader>>(unpacked, count, x + k, inputs, rows, sums, (const char*)unpacked);
    }
}

#if defined(PILOTFISH_TILES)
// Sums [count][rows] of all rows for `count` groups from the first one on. Quantised weights are unpacked in registers by
// few rows, as in multiply_group; of more rows into memory, where tiles want them.
template <class T>
static void multiply_groups_by_tiles(const Weights& w, int64_t first, int64_t count, int64_t inputs, const bf16* x, int64_t rows, Sums* sums) {
    if (w.format == BFLOAT16)
        return multiply_by_tiles<T>(w.group(first, inputs), count, inputs, x, rows, sums, prefetch_bytes<Bfloat16Block>(rows));
    if (rows < 4) {
        const FlushSubnormals flush;
        const auto multiply = w.format == INT8 ? multiply_rows<TileOrder<Int8Reader>> : multiply_rows<TileOrder<Int4Reader>>;
        std::fill_n(sums, count * rows, Sums{});
        for (int64_t g = 0; g < count; g++)
            multiply(w.group(first + g, inputs), inputs, x, inputs, rows, sums + g * rows, w.group(first + g + 1, inputs));
        return;
    }
    struct alignas(64) Unpacked : Bfloat16Block {};
    thread_local std::vector<Unpacked> unpacked;
    const int64_t num_blocks = inputs / BLOCK_INPUTS;
    if ((int64_t)unpacked.size() < num_blocks) unpacked = std::vector<Unpacked>(num_blocks);
    for (int64_t g = 0; g < count; g++) {
        unpack(w.format, w.group(first + g, inputs), num_blocks, unpacked.data());
        multiply_by_tiles<T>(unpacked.data(), 1, inputs, x, rows, sums + g * rows, 0);
    }
}
#endif

// Runs body(row) for every row, on the team when there are enough of them.
template <class Body>
static void each_row(Team& team, int64_t rows, const Body& body) {
    const int items = rows < 8 ? 1 : std::min<int64_t>(rows / 4, 8 * team.size());
    team.run(items, [&](int item) {
        for (int64_t r = rows * item / items; r < rows * (item + 1) / items; r++) body(r);
    });
}

// emit(row, group, v16, v16) receives 32 outputs of a row. rounded: room for the inputs in eight bits.
template <class T = Tiles, class Emit>
static void linear(Team& team, const Weights& w, int64_t inputs, int64_t outputs, const bf16* x, InputBlock* rounded, int64_t rows,
                   const Emit& emit) {
    if (!rows) return;
    if (w.rounds_inputs)
        each_row(team, rows, [&](int64_t r) { round_inputs(x + r * inputs, inputs, rounded + r, rows); });
    const int64_t groups = outputs / GROUP_OUTPUTS;
    const int64_t items = std::max(std::min<int64_t>(groups, 16 * team.size()), (groups + MAX_ITEM_GROUPS - 1) / MAX_ITEM_GROUPS);
    const auto first_group = [=](int item) { return groups * item / items; };
    // [groups of the item][rows]; captures copies, see Team. A helper that was overtaken goes on reading x while others
    // write it: its sums are thrown away, so nothing depends on what it reads. To C++ it is a race all the same, which
    // ThreadSanitizer reports of `multiply`. Atomic loads would end it, and the broadcasts from memory with it.
    const auto compute = [=](int item) -> const Sums* {
        thread_local std::vector<Sums> sums;
        const int64_t first = first_group(item), count = first_group(item + 1) - first;
        if ((int64_t)sums.size() < count * rows) sums = std::vector<Sums>(count * rows);
#if defined(PILOTFISH_TILES)
        if (!w.rounds_inputs) {
            multiply_groups_by_tiles<T>(w, first, count, inputs, x, rows, sums.data());
            return sums.data();
        }
#endif
        for (int64_t g = 0; g < count; g++) {
            const char* next = w.group(first + g + 1, inputs);  // a thread's items lie together
            multiply_group(w, first + g, inputs, x, rounded, rows, sums.data() + g * rows, next);
        }
        return sums.data();
    };
    team.run(items, compute, [&](int item, const Sums* sums) {
        for (int64_t group = first_group(item); group < first_group(item + 1); group++)
            for (int64_t r = 0; r < rows; r++, sums++) emit(r, group, sums->of[0], sums->of[1]);
    });
    T::release();  // the caller's thread is not ours alone
}

static void rms_norm(const float* x, const bf16* weight, float eps, int64_t size, bf16* out) {
    v16 squares{};
    for (int64_t i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
    for (int64_t i = 0; i < size; i += LANES) store_bf16(out + i, load(x + i) * scale * load_bf16(weight + i));
}
