// One decoder layer over the rows of a step: what the model and the heads on top of it share.
#pragma once
#include <algorithm>
#include <vector>

#include "attention.h"
#include "linear.h"
#include "model.h"

// Buffers of one forward, kept from step to step.
struct Workspace {
    std::vector<float> residual;   // [T][hidden]
    std::vector<float> projected;  // [T][qkv]
    std::vector<bf16> input;       // [T][inputs of a layer], later [R][hidden]
    std::vector<bf16> attended, gated;
    std::vector<InputBlock> rounded;  // of a linear
    std::vector<Tile> tiles;

    // fused: inputs of a linear before the layers, if there is one.
    void resize(const Model& m, const Step& step, int64_t layer_inputs, int64_t fused = 0) {
        residual.resize(step.rows * m.hidden);
        projected.resize(step.rows * (m.heads + 2 * m.kv_heads) * m.head_dim);
        input.resize(std::max(step.rows * layer_inputs, step.num_logit_rows * m.hidden));
        attended.resize(step.rows * m.heads * m.head_dim);
        gated.resize(step.rows * m.intermediate);
        const int64_t widest = std::max({layer_inputs, m.heads * m.head_dim, m.intermediate, fused});
        if (m.layers->qkv.rounds_inputs) rounded.resize(std::max(step.rows, step.num_logit_rows) * widest / BLOCK_INPUTS);
        cut_into_tiles(step, tiles);
    }
};

struct Engine {
    Model model;
    std::vector<Layer> layers;
    Team team;
    Workspace workspace;
    Engine(const Model& m, int threads) : model(m), layers(m.layers, m.layers + m.num_layers), team(threads, Tiles::release) {}
};

constexpr int64_t ROTATED_ROWS = 4;

// Runs body(row, kv_head) for every row and head, on the team when there are enough rows. A few rows of one head at a
// time: neighbouring tokens' keys lie in the same lines, which two threads would pass to and fro.
template <class Body>
static void each_row_and_head(Team& team, int64_t rows, int64_t kv_heads, const Body& body) {
    const int64_t items = (rows + ROTATED_ROWS - 1) / ROTATED_ROWS * kv_heads;
    const auto run_item = [&](int item) {
        const int64_t first = item / kv_heads * ROTATED_ROWS;
        for (int64_t r = first; r < std::min(rows, first + ROTATED_ROWS); r++) body(r, item % kv_heads);
    };
    if (rows >= 8) return team.run(items, run_item);
    for (int64_t item = 0; item < items; item++) run_item(item);
}

static void embed(const Model& m, int64_t token, float* out) {
    if (m.embedding) for (int64_t i = 0; i < m.hidden; i++) out[i] = to_float(m.embedding[token * m.hidden + i]);
    else load_output(m.head, token, m.hidden, out);
}

// Queries, keys and values of the normed rows in w.input [T][inputs]: the queries are left in w.projected.
static void project_rows(Team& team, const Model& m, const Layer& layer, const Step& step, int64_t inputs, Workspace& w) {
    const int64_t rows = step.rows, dim = m.head_dim, group = m.heads / m.kv_heads;
    const int64_t query_size = m.heads * dim, kv_size = m.kv_heads * dim, qkv_size = query_size + 2 * kv_size;
    float* qkv = w.projected.data();
    linear(team, layer.qkv, inputs, qkv_size, w.input.data(), w.rounded.data(), rows, [&](int64_t r, int64_t group_index, v16 a, v16 b) {
        const int64_t at = group_index * GROUP * LANES;
        if (layer.qkv_bias) {
            a += load_bf16(layer.qkv_bias + at);
            b += load_bf16(layer.qkv_bias + at + LANES);
        }
        store(qkv + r * qkv_size + at, a);
        store(qkv + r * qkv_size + at + LANES, b);
    });
    each_row_and_head(team, rows, m.kv_heads, [&](int64_t r, int64_t h) {
        float *row = qkv + r * qkv_size, *key = row + query_size + h * dim;
        const float *cosine = m.cosine + step.positions[r] * (dim / 2), *sine = m.sine + step.positions[r] * (dim / 2);
        for (int64_t g = h * group; g < (h + 1) * group; g++) rotate(row + g * dim, layer.query_norm, m.eps, dim, cosine, sine);
        rotate(key, layer.key_norm, m.eps, dim, cosine, sine);
        store_kv(m, layer, step.slots[r], h, key, key + kv_size);
    });
}

// Attention of the rows in w.tiles: leaves it in w.attended [T][H * D].
static void attend_rows(Team& team, const Model& m, const Layer& layer, const Step& step, Workspace& w) {
    const int64_t dim = m.head_dim, group = m.heads / m.kv_heads;
    const int64_t query_size = m.heads * dim, qkv_size = query_size + 2 * m.kv_heads * dim;
    const float* qkv = w.projected.data();
    bf16* attended = w.attended.data();
    const int64_t num_tiles = w.tiles.size();
    const auto next_keys = [&](int64_t item) {
        if (item == num_tiles * m.kv_heads) return NextKeys{nullptr, 0};
        const int64_t table = step.row_table[w.tiles[item % num_tiles].first_row];
        const bool is_at_hand = item % num_tiles && table == step.row_table[w.tiles[item % num_tiles - 1].first_row];
        return NextKeys{is_at_hand ? nullptr : step.tables + table * step.table_width, item / num_tiles};
    };
    team.run(num_tiles * m.kv_heads, [&](int item) {
        thread_local std::vector<float> scratch;
        // Head after head: tiles of one sequence find its keys and values where the tile before has left them.
        const Tile& tile = w.tiles[item % num_tiles];
        const int64_t kv_head = item / num_tiles, head = kv_head * group;
        attend(m, layer, step, tile, kv_head, next_keys(item + 1), qkv + tile.first_row * qkv_size + head * dim, qkv_size,
               attended + tile.first_row * query_size + head * dim, query_size, scratch);
    });
}

// Adds the attention and the feed-forward part of the first `rows` rows to w.residual.
static void finish_rows(Team& team, const Model& m, const Layer& layer, int64_t rows, Workspace& w) {
    const int64_t hidden = m.hidden, query_size = m.heads * m.head_dim;
    float* residual = w.residual.data();
    bf16 *input = w.input.data(), *attended = w.attended.data(), *gated = w.gated.data();
    InputBlock* rounded = w.rounded.data();
    auto add_to_residual = [&](int64_t r, int64_t group_index, v16 a, v16 b) {
        float* out = residual + r * hidden + group_index * GROUP * LANES;
        store(out, load(out) + a);
        store(out + LANES, load(out + LANES) + b);
    };
    linear(team, layer.output, query_size, hidden, attended, rounded, rows, add_to_residual);
    each_row(team, rows, [&](int64_t r) { rms_norm(residual + r * hidden, layer.post_norm, m.eps, hidden, input + r * hidden); });
    // A group is 16 gates and their 16 ups.
    linear(team, layer.gate_up, hidden, 2 * m.intermediate, input, rounded, rows, [&](int64_t r, int64_t group_index, v16 gate, v16 up) {
        const v16 decay = exp_nonpositive(select(gate > 0.0f, -gate, gate));
        const v16 sigmoid = select(gate > 0.0f, splat(1.0f), decay) / (1.0f + decay);
        store_bf16(gated + r * m.intermediate + group_index * LANES, gate * sigmoid * up);
    });
    linear(team, layer.down, m.intermediate, hidden, gated, rounded, rows, add_to_residual);
}

// The layer over the normed rows in w.input [T][inputs], added to w.residual.
static void run_layer(Team& team, const Model& m, const Layer& layer, const Step& step, int64_t inputs, Workspace& w) {
    project_rows(team, m, layer, step, inputs, w);
    attend_rows(team, m, layer, step, w);
    finish_rows(team, m, layer, step.rows, w);
}

// As run_layer, for a layer that no other follows: of rows without logits only keys and values are computed. The logit
// rows, which ascend, are then the first ones of w.residual.
static void run_last_layer(Team& team, const Model& m, const Layer& layer, const Step& step, int64_t inputs, Workspace& w) {
    project_rows(team, m, layer, step, inputs, w);
    if (!step.num_logit_rows) return;
    const int64_t *first = step.logit_rows, *end = first + step.num_logit_rows;
    const auto is_idle = [&](const Tile& tile) {
        const int64_t* next = std::lower_bound(first, end, tile.first_row);
        return next == end || *next >= tile.first_row + tile.num_rows;
    };
    w.tiles.erase(std::remove_if(w.tiles.begin(), w.tiles.end(), is_idle), w.tiles.end());
    attend_rows(team, m, layer, step, w);
    const int64_t query_size = m.heads * m.head_dim;
    for (int64_t i = 0; i < step.num_logit_rows; i++) {
        const int64_t r = step.logit_rows[i];
        if (r == i) continue;
        std::copy_n(w.attended.data() + r * query_size, query_size, w.attended.data() + i * query_size);
        std::copy_n(w.residual.data() + r * m.hidden, m.hidden, w.residual.data() + i * m.hidden);
    }
    finish_rows(team, m, layer, step.num_logit_rows, w);
}

static void embed_rows(const Model& m, const Step& step, Workspace& w) {
    for (int64_t r = 0; r < step.rows; r++) embed(m, step.token_ids[r], w.residual.data() + r * m.hidden);
}

// The first `count` layers over the rows in w.residual. Keeps what enters those that the step captures.
static void run_layers(Team& team, const Model& m, const Layer* layers, int64_t count, const Step& step, Workspace& w) {
    const int64_t rows = step.rows, hidden = m.hidden;
    for (int64_t l = 0; l < count; l++) {
        const Layer& layer = layers[l];
        each_row(team, rows, [&](int64_t r) {
            const float* row = w.residual.data() + r * hidden;
            for (int64_t f = 0; f < step.num_captured; f++) {
                if (step.captured_layers[f] != l) continue;
                bf16* feature = step.features + (r * step.num_captured + f) * hidden;
                for (int64_t i = 0; i < hidden; i += LANES) store_bf16(feature + i, load(row + i));
            }
            rms_norm(row, layer.input_norm, m.eps, hidden, w.input.data() + r * hidden);
            // The row's keys and values go to lines anywhere in memory: let them arrive during the linear.
            if (rows <= 64) prefetch_slot(m, layer, step.slots[r]);
        });
        run_layer(team, m, layer, step, hidden, w);
    }
}

// The final norm and the output projection of the logit rows; leaves the normed rows in w.input [R][hidden].
// are_first: whether they are the first rows of w.residual, see run_last_layer.
static void run_output(Team& team, const Model& m, const Step& step, Workspace& w, bool are_first = false) {
    bf16* input = w.input.data();
    for (int64_t i = 0; i < step.num_logit_rows; i++) {
        const int64_t r = are_first ? i : step.logit_rows[i];
        rms_norm(w.residual.data() + r * m.hidden, m.final_norm, m.eps, m.hidden, input + i * m.hidden);
    }
    linear(team, m.head, m.hidden, m.vocab, input, w.rounded.data(), step.num_logit_rows,
           [&](int64_t r, int64_t group_index, v16 a, v16 b) {
               store(step.logits + r * m.vocab + group_index * GROUP * LANES, a);
               store(step.logits + r * m.vocab + group_index * GROUP * LANES + LANES, b);
           });
}
