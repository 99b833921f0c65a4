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

// Sums of ROWS rows for one group; they share each line of weights. Sums run over the inputs in order, whatever ROWS is.
template <class Reader, int ROWS>
static void multiply(const char* group, int64_t pairs, const uint32_t* x, v16 (*sums)[GROUP]) {
    typedef typename Reader::Block Block;
    constexpr int64_t PAIR_BYTES = sizeof(Block) / BLOCK_PAIRS;
    v16 acc[ROWS][GROUP];
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) acc[r][b] = v16{};
    for (int64_t first = 0; first < pairs; first += BLOCK_PAIRS, group += sizeof(Block)) {
        Reader reader(*(const Block*)group);
        const int64_t end = std::min<int64_t>(pairs, first + BLOCK_PAIRS);
        const char* ahead = group + PREFETCH_BYTES;
        for (int64_t k = first; k < end; k++, ahead += PAIR_BYTES) {
            for (int64_t i = 0; i < PAIR_BYTES; i += 64) __builtin_prefetch(ahead + i, 0, 2);
            v16u lines[GROUP];
            reader.next(lines);
            for (int r = 0; r < ROWS; r++)
                for (int b = 0; b < GROUP; b++) acc[r][b] = dot_pairs(acc[r][b], lines[b], x[r * pairs + k]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) sums[r][b] = acc[r][b];
}

typedef void (*Multiply)(const char* group, int64_t pairs, const uint32_t* x, v16 (*sums)[GROUP]);

template <class Reader, int... ROWS>
static Multiply for_rows(int rows, std::integer_sequence<int, ROWS...>) {
    static constexpr Multiply functions[] = {multiply<Reader, ROWS + 1>...};
    return functions[rows - 1];
}

// Sums of at most MAX_TILE_ROWS rows for one group.
static void multiply_tile(const Weights& w, int64_t group, int64_t inputs, const bf16* x, int rows, v16 (*sums)[GROUP]) {
    const auto all = std::make_integer_sequence<int, MAX_TILE_ROWS>();
    const Multiply function = w.format == INT8   ? for_rows<Int8Reader>(rows, all)
                              : w.format == INT4 ? for_rows<Int4Reader>(rows, all)
                                                 : for_rows<Bfloat16Reader>(rows, all);
    function(w.group(group, inputs), inputs / 2, (const uint32_t*)x, sums);
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
