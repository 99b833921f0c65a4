// What a model and a step consist of. Model, Layer and Step mirror the ctypes structs of layout.py.
#pragma once
#include <cstdint>

#include "vector.h"
#include "weights.h"

struct Layer {
    const bf16 *input_norm, *qkv_bias, *query_norm, *key_norm, *post_norm;
    Weights qkv, output, gate_up, down;
    bf16 *keys, *values;
    int64_t window;     // tokens a row sees; 0: all
    int64_t first_key;  // keys before it are seen by nobody but themselves
};

struct Model {
    int64_t hidden, heads, kv_heads, head_dim, intermediate, vocab, num_layers, max_positions;
    float eps, scale;
    const bf16 *embedding, *final_norm;  // embedding null: tied, read from head
    Weights head;
    const float *cosine, *sine;  // [max_positions][D / 2]
    const Layer* layers;
};

struct Step {
    int64_t rows, num_logit_rows;
    const int64_t *token_ids, *positions, *slots;   // [T]
    const int64_t *row_table;                       // [T] which block table a row uses
    const int64_t* tables;                          // [S][table_width]
    int64_t table_width;
    const int64_t* logit_rows;                      // [R]
    float* logits;                                  // [R][V]
    const int64_t* captured_layers;                 // [F]
    int64_t num_captured;
    bf16* features;                                 // [T][F][hidden] rows as they enter the captured layers
    bf16* last_hidden;                              // [R][hidden] after the final norm; null: not wanted
    const int64_t* roots;                           // [T] place of the row's tree root; of a row of no tree its own
    const uint64_t* ancestors;                      // [T] what the row sees from its root on: bit i is the place root + i

    bool is_node(int64_t row) const { return ancestors[row] != 1; }
    // Where the row's keys and values lie: its own bit is the highest.
    int64_t place(int64_t row) const { return roots[row] + 63 - __builtin_clzll(ancestors[row]); }
};

// Consecutive rows of one sequence, which share its keys and values.
struct Tile {
    int64_t first_row, num_rows;
};
