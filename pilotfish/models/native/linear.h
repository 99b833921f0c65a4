// Linears over packed weights (weights.h), and the norm before them.
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>

#include "team.h"
#include "vector.h"
#include "weights.h"

constexpr int MAX_TILE_ROWS = 12;  // 24 accumulators leave vector registers for the weights
constexpr int PREFETCH_BYTES = 4096;

// Sums of ROWS rows for one group; they share each line of weights. Sums run over the inputs in order, whatever ROWS is.
template <int ROWS>
static void multiply_tile(const bf16* line, int64_t pairs, const uint32_t* x, v16 (*sums)[GROUP]) {
    v16 acc[ROWS][GROUP];
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) acc[r][b] = v16{};
    for (int64_t k = 0; k < pairs; k++, line += PAIR_SIZE) {
        for (int b = 0; b < GROUP; b++) __builtin_prefetch((const char*)(line + b * 2 * LANES) + PREFETCH_BYTES, 0, 2);
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < GROUP; b++) acc[r][b] = dot_pairs(acc[r][b], line + b * 2 * LANES, x[r * pairs + k]);
    }
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) sums[r][b] = acc[r][b];
}

typedef void (*MultiplyTile)(const bf16* line, int64_t pairs, const uint32_t* x, v16 (*sums)[GROUP]);

// The function for a number of rows, from 1.
template <int... ROWS>
static MultiplyTile tile_function(int rows, std::integer_sequence<int, ROWS...>) {
    static constexpr MultiplyTile functions[] = {multiply_tile<ROWS + 1>...};
    return functions[rows - 1];
}

// emit(row, group, v16, v16) receives 32 outputs of a row.
template <class Emit>
static void linear(Team& team, const Weights& w, int64_t inputs, int64_t outputs, const bf16* x, int64_t rows, const Emit& emit) {
    const int64_t groups = outputs / (GROUP * LANES), pairs = inputs / 2;
    const int64_t items = std::min<int64_t>(groups, 16 * team.size());
    const uint32_t* packed_x = (const uint32_t*)x;
    team.run(items, [&](int item) {
        v16 sums[MAX_TILE_ROWS][GROUP];
        for (int64_t group = groups * item / items; group < groups * (item + 1) / items; group++) {
            const bf16* line = (const bf16*)w.data + group * pairs * PAIR_SIZE;
            for (int64_t first = 0; first < rows; first += MAX_TILE_ROWS) {
                const int count = std::min<int64_t>(MAX_TILE_ROWS, rows - first);
                tile_function(count, std::make_integer_sequence<int, MAX_TILE_ROWS>())(line, pairs, packed_x + first * pairs, sums);
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
