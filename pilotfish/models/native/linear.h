// Linears over packed weights (weights.h), and the norm before them.
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>

#include "team.h"
#include "unpack.h"
#include "vector.h"
#include "weights.h"

constexpr int MAX_TILE_ROWS = 12;  // 24 accumulators leave vector registers for the weights
constexpr int PREFETCH_BYTES = 4096;

// Memory that is on its way while lines are multiplied: for each pair of inputs the next stride bytes.
struct Ahead {
    const char* from;
    int64_t stride;
};

// Adds the products of `pairs` pairs of inputs to the sums of ROWS rows, which share each line of weights.
// Sums run over the inputs in order, whatever ROWS is. x is [ROWS][x_stride] pairs.
template <int ROWS>
static void multiply(const bf16* line, int64_t pairs, Ahead ahead, const uint32_t* x, int64_t x_stride, v16 (*sums)[GROUP]) {
    v16 acc[ROWS][GROUP];
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) acc[r][b] = sums[r][b];
    for (int64_t k = 0; k < pairs; k++, line += PAIR_SIZE, ahead.from += ahead.stride) {
        for (int b = 0; b < GROUP; b++) __builtin_prefetch(ahead.from + b * 64, 0, 2);
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < GROUP; b++) acc[r][b] = dot_pairs(acc[r][b], line + b * 2 * LANES, x[r * x_stride + k]);
    }
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) sums[r][b] = acc[r][b];
}

typedef void (*Multiply)(const bf16* line, int64_t pairs, Ahead ahead, const uint32_t* x, int64_t x_stride, v16 (*sums)[GROUP]);

// The function for a number of rows, from 1.
template <int... ROWS>
static Multiply for_rows(int rows, std::integer_sequence<int, ROWS...>) {
    static constexpr Multiply functions[] = {multiply<ROWS + 1>...};
    return functions[rows - 1];
}

// Sums of at most MAX_TILE_ROWS rows for one group.
static void multiply_tile(const Weights& w, int64_t group, int64_t inputs, const bf16* x, int rows, v16 (*sums)[GROUP]) {
    const Multiply function = for_rows(rows, std::make_integer_sequence<int, MAX_TILE_ROWS>());
    const uint32_t* pairs = (const uint32_t*)x;
    const char* block = w.group(group, inputs);
    Ahead ahead{block + PREFETCH_BYTES, w.block_bytes() / BLOCK_PAIRS};
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < GROUP; b++) sums[r][b] = v16{};
    if (w.format == BFLOAT16) return function((const bf16*)block, inputs / 2, ahead, pairs, inputs / 2, sums);
    bf16 lines[BLOCK_PAIRS * PAIR_SIZE];
    for (int64_t k = 0; k < inputs / BLOCK_INPUTS; k++, block += w.block_bytes(), ahead.from += w.block_bytes()) {
        unpack(w.format, block, lines);
        function(lines, BLOCK_PAIRS, ahead, pairs + k * BLOCK_PAIRS, inputs / 2, sums);
    }
}

// emit(row, group, v16, v16) receives 32 outputs of a row.
template <class Emit>
static void linear(Team& team, const Weights& w, int64_t inputs, int64_t outputs, const bf16* x, int64_t rows, const Emit& emit) {
    const int64_t groups = outputs / GROUP_OUTPUTS;
    const int64_t items = std::min<int64_t>(groups, 16 * team.size());
    team.run(items, [&](int item) {
        thread_local std::vector<bf16> lines;
        v16 sums[MAX_TILE_ROWS][GROUP];
        for (int64_t group = groups * item / items; group < groups * (item + 1) / items; group++) {
            Weights weights = w;
            int64_t index = group;
            if (w.format != BFLOAT16 && rows > MAX_TILE_ROWS) {  // several tiles: unpack once for all
                weights = unpack_group(w, group, inputs, lines);
                index = 0;
            }
            for (int64_t first = 0; first < rows; first += MAX_TILE_ROWS) {
                const int count = std::min<int64_t>(MAX_TILE_ROWS, rows - first);
                multiply_tile(weights, index, inputs, x + first * inputs, count, sums);
                for (int r = 0; r < count; r++) emit(first + r, group, sums[r][0], sums[r][1]);
            }
        }
    });
}

static void rms_norm(const float* x, const bf16* weight, float eps, int64_t size, bf16* out) {
    v16 squares{};
    for (int64_t i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
    for (int64_t i = 0; i < size; i += LANES) store_bf16(out + i, load(x + i) * scale * load_bf16(weight + i));
}
