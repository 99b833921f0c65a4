// Linears over packed bfloat16 weights (layout in kernels.cpp), and the norm before them.
#pragma once
#include <algorithm>
#include <cmath>

#include "team.h"
#include "vector.h"

constexpr int GROUP = 2;          // blocks of 16 outputs that lie together
constexpr int MAX_TILE_ROWS = 12;  // 24 accumulators leave vector registers for the weights
constexpr int PREFETCH_BYTES = 4096;

// ROWS rows share each line of weights; sums run over the inputs in order, whatever ROWS is.
template <int ROWS, class Emit>
static inline void linear_tile(const bf16* w, int64_t pairs, const uint32_t* x, int64_t row, int64_t group, const Emit& emit) {
    v16 acc[ROWS][GROUP];
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) acc[r][b] = v16{};
    const bf16* line = w + group * pairs * GROUP * 2 * LANES;
    x += row * pairs;
    for (int64_t k = 0; k < pairs; k++, line += GROUP * 2 * LANES) {
        for (int b = 0; b < GROUP; b++) __builtin_prefetch((const char*)(line + b * 2 * LANES) + PREFETCH_BYTES, 0, 2);
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < GROUP; b++) acc[r][b] = dot_pairs(acc[r][b], line + b * 2 * LANES, x[r * pairs + k]);
    }
    for (int r = 0; r < ROWS; r++) emit(row + r, group, acc[r][0], acc[r][1]);
}

// The last rows of a linear, fewer than a full tile: one tile of exactly their number.
template <int ROWS, class Emit>
static inline void linear_rest(const bf16* w, int64_t pairs, const uint32_t* x, int64_t row, int64_t rest, int64_t group, const Emit& emit) {
    if constexpr (ROWS > 0) {
        if (rest == ROWS) linear_tile<ROWS>(w, pairs, x, row, group, emit);
        else linear_rest<ROWS - 1>(w, pairs, x, row, rest, group, emit);
    }
}

// emit(row, group, v16, v16) receives 32 outputs of a row.
template <class Emit>
static void linear(Team& team, const bf16* w, int64_t inputs, int64_t outputs, const bf16* x, int64_t rows, const Emit& emit) {
    const int64_t groups = outputs / (GROUP * LANES), pairs = inputs / 2;
    const int64_t items = std::min<int64_t>(groups, 16 * team.size());
    const uint32_t* packed_x = (const uint32_t*)x;
    team.run(items, [&](int item) {
        for (int64_t group = groups * item / items; group < groups * (item + 1) / items; group++) {
            int64_t r = 0;
            for (; r + MAX_TILE_ROWS <= rows; r += MAX_TILE_ROWS) linear_tile<MAX_TILE_ROWS>(w, pairs, packed_x, r, group, emit);
            linear_rest<MAX_TILE_ROWS - 1>(w, pairs, packed_x, r, rows - r, group, emit);
        }
    });
}

static void rms_norm(const float* x, const bf16* weight, float eps, int64_t size, bf16* out) {
    v16 squares{};
    for (int64_t i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
    for (int64_t i = 0; i < size; i += LANES) store_bf16(out + i, load(x + i) * scale * load_bf16(weight + i));
}

// Where weight [n][k] lies in the packed layout.
static inline int64_t packed_index(int64_t n, int64_t k, int64_t inputs, int64_t stride, int64_t offset) {
    const int64_t block = n / LANES * stride + offset, group = block / GROUP;
    return ((group * (inputs / 2) + k / 2) * GROUP + block % GROUP) * 2 * LANES + n % LANES * 2 + k % 2;
}
