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
        most = v > most ? v : most;
    }
    float largest = -INFINITY;
    for (int i = 0; i < LANES; i++) largest = std::fmax(largest, most[i]);
    v16 total{};
    for (int64_t j = 0; j < count; j += LANES) {
        v16 x = load(s + j);
        v16 e = exp_nonpositive(x - largest);
        e = x == -INFINITY ? v16{} : e;
        store(s + j, e);
        total += e;
    }
    const float inverse = 1.0f / sum(total);
    for (int64_t j = 0; j < count; j += LANES) store(s + j, load(s + j) * inverse);
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
    const int64_t first_block = first_key(0) / BLOCK, blocks = positions[rows - 1] / BLOCK - first_block + 1;
    const int64_t keys = blocks * BLOCK;
    scratch.resize(rows * group * (keys + dim + dim / 2) + 64);
    float* scores = scratch.data();                  // [rows][G][keys]
    float* sums = scores + rows * group * keys;      // [rows][G][D]
    uint32_t* pairs = (uint32_t*)(sums + rows * group * dim);  // [rows][G][D / 2]
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < group * dim; i++)
            ((bf16*)pairs)[r * group * dim + i] = to_bf16(queries[r * query_stride + i] * m.scale);
    // A row's own blocks, counted from the tile's first.
    auto begin_block = [&](int64_t r) { return first_key(r) / BLOCK - first_block; };
    auto end_block = [&](int64_t r) { return positions[r] / BLOCK - first_block + 1; };
    constexpr int64_t AHEAD = 4;  // blocks whose keys are on their way from memory
    for (int64_t b = 0; b < std::min(AHEAD, blocks); b++)
        prefetch(layer.keys + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
    for (int64_t b = 0; b < blocks; b++) {
        const bf16* k = layer.keys + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK;
        if (b + AHEAD < blocks)
            prefetch(layer.keys + (table[first_block + b + AHEAD] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
        prefetch(layer.values + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
        for (int64_t r = 0; r < rows; r++) {
            if (b < begin_block(r) || b >= end_block(r)) continue;
            const uint32_t* query = pairs + r * group * dim / 2;
            float* to = scores + r * group * keys + b * BLOCK;
            int64_t g = 0;
            for (; g + 4 <= group; g += 4) score_block<4>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
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
            for (int64_t j = begin; j < first; j++) s[j] = -INFINITY;
            for (int64_t j = last + 1; j < end; j++) s[j] = -INFINITY;
            softmax(s + begin, end - begin);
        }
    }
    for (int64_t i = 0; i < rows * group * dim; i++) sums[i] = 0;
    for (int64_t b = 0; b < blocks; b++) {
        const bf16* v = layer.values + (table[first_block + b] * m.kv_heads + kv_head) * BLOCK * dim;
        for (int64_t d = 0; d < dim; d += LANES) {
            v16 values[BLOCK];
            for (int t = 0; t < BLOCK; t++) values[t] = load_bf16(v + t * dim + d);
            for (int64_t r = 0; r < rows; r++) {
                if (b < begin_block(r) || b >= end_block(r)) continue;
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
