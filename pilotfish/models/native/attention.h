// Rotary embedding, the paged KV cache and attention over it (layouts in kernels.cpp).
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "model.h"

// Rotates pairs (i, i + D/2), as transformers does, after an optional per-head norm.
static void rotate(float* head, const bf16* norm, float eps, int64_t dim, const float* cosine, const float* sine) {
    if (norm) {
        float squares = 0;
        for (int64_t i = 0; i < dim; i++) squares += head[i] * head[i];
        const float scale = 1.0f / std::sqrt(squares / dim + eps);
        for (int64_t i = 0; i < dim; i++) head[i] *= scale * to_float(norm[i]);
    }
    for (int64_t i = 0; i < dim / 2; i++) {
        const float a = head[i], b = head[i + dim / 2];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + dim / 2] = b * cosine[i] + a * sine[i];
    }
}

static void store_kv(const Model& m, const Layer& layer, int64_t slot, const float* key, const float* value) {
    const int64_t block = slot / BLOCK, token = slot % BLOCK;
    for (int64_t h = 0; h < m.kv_heads; h++) {
        bf16* k = layer.keys + ((block * m.kv_heads + h) * (m.head_dim / 2)) * BLOCK * 2;
        bf16* v = layer.values + ((block * m.kv_heads + h) * BLOCK + token) * m.head_dim;
        for (int64_t i = 0; i < m.head_dim; i++) {
            k[(i / 2) * BLOCK * 2 + token * 2 + i % 2] = to_bf16(key[h * m.head_dim + i]);
            v[i] = to_bf16(value[h * m.head_dim + i]);
        }
    }
}

// Copies the keys and values of slots moves[i][0] to slots moves[i][1]; all are read before any is written.
static void move_kv(const Model& m, const Layer& layer, const int64_t (*moves)[2], int64_t count) {
    const int64_t dim = m.head_dim;
    thread_local std::vector<bf16> held;
    held.resize(count * 2 * dim);
    auto each = [&](int64_t h, int side, auto body) {
        for (int64_t i = 0; i < count; i++) {
            const int64_t block = moves[i][side] / BLOCK, token = moves[i][side] % BLOCK;
            bf16* k = layer.keys + (block * m.kv_heads + h) * dim * BLOCK + token * 2;
            bf16* v = layer.values + ((block * m.kv_heads + h) * BLOCK + token) * dim;
            bf16* buffer = held.data() + i * 2 * dim;
            for (int64_t d = 0; d < dim; d++) body(buffer[d], k[d / 2 * BLOCK * 2 + d % 2]);
            for (int64_t d = 0; d < dim; d++) body(buffer[dim + d], v[d]);
        }
    };
    for (int64_t h = 0; h < m.kv_heads; h++) {
        each(h, 0, [](bf16& buffer, bf16& cache) { buffer = cache; });
        each(h, 1, [](bf16& buffer, bf16& cache) { cache = buffer; });
    }
}

static void prefetch_slot(const Model& m, const Layer& layer, int64_t slot) {
    const int64_t block = slot / BLOCK, token = slot % BLOCK, dim = m.head_dim;
    for (int64_t h = 0; h < m.kv_heads; h++) {
        const bf16* k = layer.keys + (block * m.kv_heads + h) * dim * BLOCK;
        const bf16* v = layer.values + ((block * m.kv_heads + h) * BLOCK + token) * dim;
        for (int64_t i = 0; i < dim / 2; i++) __builtin_prefetch(k + i * BLOCK * 2, 1, 2);
        for (int64_t i = 0; i < dim; i += 32) __builtin_prefetch(v + i, 1, 2);
    }
}

// Blocks lie anywhere in the pool: the hardware does not see the next one coming.
static inline void prefetch(const bf16* from, int64_t count) {
    for (int64_t i = 0; i < count; i += 32) __builtin_prefetch(from + i, 0, 2);
}

constexpr int MAX_SCORED_HEADS = REGISTER_BYTES == 64 ? 4 : 2;  // their sums stay in registers

// Scores of HEADS query heads over one block of keys; two sums a head (even and odd pairs) hide the latency.
template <int HEADS>
static inline void score_block(const bf16* k, int64_t num_pairs, const uint32_t* query, float* scores, int64_t stride) {
    v16 even[HEADS], odd[HEADS];
    for (int g = 0; g < HEADS; g++) even[g] = odd[g] = v16{};
    for (int64_t i = 0; i < num_pairs; i += 2)
        for (int g = 0; g < HEADS; g++) {
            even[g] = dot_pairs(even[g], k + i * BLOCK * 2, query[g * num_pairs + i]);
            odd[g] = dot_pairs(odd[g], k + (i + 1) * BLOCK * 2, query[g * num_pairs + i + 1]);
        }
    for (int g = 0; g < HEADS; g++) store(scores + g * stride, even[g] + odd[g]);
}

// In place over count scores (a multiple of 16). Summed in ascending order, masked scores as exact zeros.
static inline void softmax(float* s, int64_t count) {
    v16 most = load(s);
    for (int64_t j = LANES; j < count; j += LANES) {
        v16 v = load(s + j);
        most = select(v > most, v, most);
    }
    const float largest = largest_of(most);
    v16 total{};
    for (int64_t j = 0; j < count; j += LANES) {
        v16 x = load(s + j);
        v16 e = exp_nonpositive(x - largest);
        e = select(x == -INFINITY, v16{}, e);
        store(s + j, e);
        total += e;
    }
    const float inverse = 1.0f / sum(total);
    for (int64_t j = 0; j < count; j += LANES) store(s + j, load(s + j) * inverse);
}

// A node's ancestors lie between other nodes. Scores and values are taken in the order of its text, as if the path had
// been decoded token by token: that keeps every sum, and so every bit, the same. A score does not depend on where its
// key lies.
static void order_scores(const Step& step, int64_t row, int64_t first_place, float* scores) {
    const int64_t root = step.roots[row] - first_place;
    int64_t to = root;
    // In place: an ancestor never lies before its turn.
    for (uint64_t left = step.ancestors[row] & ~1ull; left; left &= left - 1)
        if (++to >= 0) scores[to] = scores[root + __builtin_ctzll(left)];
}

// Adds the values from a block of the node's text on to sums [G][D]; scores: [G][stride] from first_block on.
static void add_path_values(const Model& m, const Layer& layer, const Step& step, int64_t row, const int64_t* table,
                            int64_t kv_head, int64_t block, int64_t first_block, const float* scores, int64_t stride,
                            float* sums) {
    const int64_t root = step.roots[row], position = step.positions[row], dim = m.head_dim;
    const bf16* values[BLOCK + 64];  // by position, from the block on
    const int64_t first = (first_block + block) * BLOCK;
    auto value_at = [&](int64_t place) {
        return layer.values + ((table[place / BLOCK] * m.kv_heads + kv_head) * BLOCK + place % BLOCK) * dim;
    };
    for (int64_t p = first; p <= root; p++) values[p - first] = value_at(p);
    int64_t p = root;
    for (uint64_t left = step.ancestors[row] & ~1ull; left; left &= left - 1)
        if (++p >= first) values[p - first] = value_at(root + __builtin_ctzll(left));
    for (int64_t g = 0; g < m.heads / m.kv_heads; g++) {
        const float* s = scores + g * stride + block * BLOCK;
        for (int64_t d = 0; d < dim; d += LANES) {
            v16 acc = load(sums + g * dim + d);
            for (int64_t i = 0; i <= position - first; i++) acc += load_bf16(values[i] + d) * s[i];
            store(sums + g * dim + d, acc);
        }
    }
}

// A tile's rows, one key/value head, its G query heads. Each row does exactly what it would do alone; rows only
// share the loads of a block.
static void attend(const Model& m, const Layer& layer, const Step& step, const Tile& tile, int64_t kv_head,
                   const float* queries, int64_t query_stride, bf16* out, int64_t out_stride, std::vector<float>& scratch) {
    const int64_t group = m.heads / m.kv_heads, dim = m.head_dim, rows = tile.num_rows;
    const int64_t* table = step.tables + step.row_table[tile.first_row] * step.table_width;
    const int64_t* positions = step.positions + tile.first_row;
    auto first_key = [&](int64_t r) {
        const int64_t first = layer.window && positions[r] >= layer.window ? positions[r] - layer.window + 1 : 0;
        return std::max(first, std::min(layer.first_key, positions[r]));
    };
    int64_t first_block = INT64_MAX, last_block = 0;
    for (int64_t r = 0; r < rows; r++) {
        first_block = std::min(first_block, first_key(r) / BLOCK);
        last_block = std::max(last_block, step.place(tile.first_row + r) / BLOCK);
    }
    const int64_t blocks = last_block - first_block + 1, keys = blocks * BLOCK;
    scratch.resize(rows * group * (keys + dim + dim / 2) + 64);
    float* scores = scratch.data();                  // [rows][G][keys]
    float* sums = scores + rows * group * keys;      // [rows][G][D]
    uint32_t* pairs = (uint32_t*)(sums + rows * group * dim);  // [rows][G][D / 2]
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < group * dim; i++)
            ((bf16*)pairs)[r * group * dim + i] = to_bf16(queries[r * query_stride + i] * m.scale);
    // A row's own blocks, counted from the tile's first: those of its text, and those that hold the keys it sees.
    auto begin_block = [&](int64_t r) { return first_key(r) / BLOCK - first_block; };
    auto end_block = [&](int64_t r) { return positions[r] / BLOCK - first_block + 1; };
    auto end_place = [&](int64_t r) { return step.place(tile.first_row + r) / BLOCK - first_block + 1; };
    constexpr int64_t AHEAD = 4;  // blocks whose keys are on their way from memory
    for (int64_t b = 0; b < std::min(AHEAD, blocks); b++)
        prefetch(layer.keys + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
    for (int64_t b = 0; b < blocks; b++) {
        const bf16* k = layer.keys + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK;
        if (b + AHEAD < blocks)
            prefetch(layer.keys + (table[first_block + b + AHEAD] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
        prefetch(layer.values + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
        for (int64_t r = 0; r < rows; r++) {
            if (b < begin_block(r) || b >= end_place(r)) continue;
            const uint32_t* query = pairs + r * group * dim / 2;
            float* to = scores + r * group * keys + b * BLOCK;
            int64_t g = 0;
            for (; g + MAX_SCORED_HEADS <= group; g += MAX_SCORED_HEADS)
                score_block<MAX_SCORED_HEADS>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
            if (group - g == 3) score_block<3>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
            if (group - g == 2) score_block<2>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
            if (group - g == 1) score_block<1>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t begin = begin_block(r) * BLOCK, end = end_block(r) * BLOCK;
        const int64_t first = first_key(r) - first_block * BLOCK, last = positions[r] - first_block * BLOCK;
        for (int64_t g = 0; g < group; g++) {
            float* s = scores + (r * group + g) * keys;
            if (step.is_node(tile.first_row + r)) order_scores(step, tile.first_row + r, first_block * BLOCK, s);
            for (int64_t j = begin; j < first; j++) s[j] = -INFINITY;
            for (int64_t j = last + 1; j < end; j++) s[j] = -INFINITY;
            softmax(s + begin, end - begin);
        }
    }
    // Blocks whose values are summed as they lie: of a node those before the first that its path could change.
    auto end_in_order = [&](int64_t r) {
        const int64_t row = tile.first_row + r;
        return step.is_node(row) ? (step.roots[row] + 1) / BLOCK - first_block : end_block(r);
    };
    for (int64_t i = 0; i < rows * group * dim; i++) sums[i] = 0;
    for (int64_t b = 0; b < blocks; b++) {
        const bf16* v = layer.values + (table[first_block + b] * m.kv_heads + kv_head) * BLOCK * dim;
        for (int64_t d = 0; d < dim; d += LANES) {
            v16 values[BLOCK];
            for (int t = 0; t < BLOCK; t++) values[t] = load_bf16(v + t * dim + d);
            for (int64_t r = 0; r < rows; r++) {
                if (b < begin_block(r) || b >= end_in_order(r)) continue;
                for (int64_t g = 0; g < group; g++) {
                    const float* s = scores + (r * group + g) * keys + b * BLOCK;
                    v16 acc = load(sums + (r * group + g) * dim + d);
                    for (int t = 0; t < BLOCK; t++) acc += values[t] * s[t];
                    store(sums + (r * group + g) * dim + d, acc);
                }
            }
        }
    }
    for (int64_t r = 0; r < rows; r++)
        if (step.is_node(tile.first_row + r))
            add_path_values(m, layer, step, tile.first_row + r, table, kv_head, std::max(begin_block(r), end_in_order(r)),
                            first_block, scores + r * group * keys, keys, sums + r * group * dim);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < group * dim; i += LANES)
            store_bf16(out + r * out_stride + i, load(sums + r * group * dim + i));
}

// Rows of the same sequence in tiles: small ones leave work for every thread when rows are few.
static void cut_into_tiles(const Step& step, std::vector<Tile>& tiles) {
    const int64_t most = step.rows <= 16 ? 4 : 8;
    tiles.clear();
    for (int64_t r = 0; r < step.rows; r++) {
        const bool continues = !tiles.empty() && tiles.back().num_rows < most && step.row_table[r] == step.row_table[r - 1];
        if (continues) tiles.back().num_rows++;
        else tiles.push_back({r, 1});
    }
}
