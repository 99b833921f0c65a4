// Rotary embedding, and the paged KV cache that rotated keys and values are written to (layouts in kernels.cpp).
#pragma once
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

// Stores the slot's rotated key [D] and its value [D] of one key/value head.
static void store_kv(const Model& m, const Layer& layer, int64_t slot, int64_t kv_head, const float* key, const float* value) {
    const int64_t dim = m.head_dim, head = slot / BLOCK * m.kv_heads + kv_head, token = slot % BLOCK;
    bf16* k = layer.keys + head * dim * BLOCK + token * 2;
    bf16* v = layer.values + (head * BLOCK + token) * dim;
    for (int64_t i = 0; i < dim; i += LANES) {
        bf16 rounded[LANES];
        for (int j = 0; j < LANES; j++) rounded[j] = to_bf16(key[i + j]);
        for (int j = 0; j < LANES; j += 2, k += BLOCK * 2) memcpy(k, rounded + j, 2 * sizeof(bf16));
    }
    for (int64_t i = 0; i < dim; i++) v[i] = to_bf16(value[i]);
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
