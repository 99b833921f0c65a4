// One forward of a Llama-style decoder over a paged KV cache, for CPUs.
//
// Why not a stack of library calls: a decode step is bound by reading the weights once, and some
// twenty small operations a layer cost as much again. Here a step is one call. Every row is computed
// by the same instructions in the same order whatever else is in the step, so the results do not
// depend on the batch: no reduction crosses rows, and a row's sums never depend on tile sizes.
//
// Legend: T rows, K inputs and N outputs of a linear, H query heads, H_kv key/value heads, D head size.
// Layouts (weights by pilotfish_pack below, keys and values by store_kv):
//   weights  [N / 32][K / 2][2][16][2] bfloat16: for each pair of inputs 32 outputs' pairs are two 64-byte lines,
//            so that a thread reads its share of a linear as one stream
//   keys     [block][H_kv][D / 2][16 tokens][2] bfloat16: the same shape, so scores are a small linear
//   values   [block][H_kv][16 tokens][D] bfloat16
#include "attention.h"
#include "linear.h"
#include "model.h"

static void forward(Engine& e, const Step& step) {
    const Model& m = e.model;
    const int64_t rows = step.rows, hidden = m.hidden, dim = m.head_dim, group = m.heads / m.kv_heads;
    const int64_t query_size = m.heads * dim, kv_size = m.kv_heads * dim, qkv_size = query_size + 2 * kv_size;
    cut_into_tiles(step, e.tiles);
    e.residual.resize(rows * hidden);
    e.projected.resize(rows * qkv_size);
    e.input.resize(std::max(rows, step.num_logit_rows) * hidden);
    e.attended.resize(rows * query_size);
    e.gated.resize(rows * m.intermediate);
    float *residual = e.residual.data(), *qkv = e.projected.data();
    bf16 *input = e.input.data(), *attended = e.attended.data(), *gated = e.gated.data();
    for (int64_t r = 0; r < rows; r++) {
        const int64_t token = step.token_ids[r];
        for (int64_t i = 0; i < hidden; i++)
            residual[r * hidden + i] = to_float(
                m.embedding ? m.embedding[token * hidden + i]
                            : m.head[packed_index(token, i, hidden, 1, 0)]);
    }
    const int row_items = rows < 8 ? 1 : std::min<int64_t>(rows / 4, 8 * e.team.size());
    auto each_row = [&](auto body) {
        e.team.run(row_items, [&](int item) {
            for (int64_t r = rows * item / row_items; r < rows * (item + 1) / row_items; r++) body(r);
        });
    };
    auto add_to_residual = [&](int64_t r, int64_t group_index, v16 a, v16 b) {
        float* out = residual + r * hidden + group_index * GROUP * LANES;
        store(out, load(out) + a);
        store(out + LANES, load(out + LANES) + b);
    };
    for (int64_t l = 0; l < step.num_layers; l++) {
        const Layer& layer = e.layers[l];
        for (int64_t f = 0; f < step.num_captured; f++) {
            if (step.captured_layers[f] != l) continue;
            each_row([&](int64_t r) {
                bf16* feature = step.features + (r * step.num_captured + f) * hidden;
                for (int64_t i = 0; i < hidden; i += LANES) store_bf16(feature + i, load(residual + r * hidden + i));
            });
        }
        each_row([&](int64_t r) {
            rms_norm(residual + r * hidden, layer.input_norm, m.eps, hidden, input + r * hidden);
            // The row's keys and values go to lines anywhere in memory: let them arrive during the linear.
            if (rows <= 64) prefetch_slot(m, layer, step.slots[r]);
        });
        linear(e.team, layer.qkv, hidden, qkv_size, input, rows, [&](int64_t r, int64_t group_index, v16 a, v16 b) {
            const int64_t at = group_index * GROUP * LANES;
            if (layer.qkv_bias) {
                a += load_bf16(layer.qkv_bias + at);
                b += load_bf16(layer.qkv_bias + at + LANES);
            }
            store(qkv + r * qkv_size + at, a);
            store(qkv + r * qkv_size + at + LANES, b);
        });
        each_row([&](int64_t r) {
            float* row = qkv + r * qkv_size;
            const float *cosine = m.cosine + step.positions[r] * (dim / 2), *sine = m.sine + step.positions[r] * (dim / 2);
            for (int64_t h = 0; h < m.heads; h++) rotate(row + h * dim, layer.query_norm, m.eps, dim, cosine, sine);
            for (int64_t h = 0; h < m.kv_heads; h++) rotate(row + query_size + h * dim, layer.key_norm, m.eps, dim, cosine, sine);
            store_kv(m, layer, step.slots[r], row + query_size, row + query_size + kv_size);
        });
        e.team.run(e.tiles.size() * m.kv_heads, [&](int item) {
            thread_local std::vector<float> scratch;
            const Tile& tile = e.tiles[item / m.kv_heads];
            const int64_t head = item % m.kv_heads * group;
            attend(m, layer, step, tile, item % m.kv_heads, qkv + tile.first_row * qkv_size + head * dim, qkv_size,
                   attended + tile.first_row * query_size + head * dim, query_size, scratch);
        });
        linear(e.team, layer.output, query_size, hidden, attended, rows, add_to_residual);
        each_row([&](int64_t r) { rms_norm(residual + r * hidden, layer.post_norm, m.eps, hidden, input + r * hidden); });
        // A group is 16 gates and their 16 ups.
        linear(e.team, layer.gate_up, hidden, 2 * m.intermediate, input, rows, [&](int64_t r, int64_t group_index, v16 gate, v16 up) {
            const v16 decay = exp_nonpositive(gate > 0.0f ? -gate : gate);
            const v16 sigmoid = (gate > 0.0f ? splat(1.0f) : decay) / (1.0f + decay);
            store_bf16(gated + r * m.intermediate + group_index * LANES, gate * sigmoid * up);
        });
        linear(e.team, layer.down, m.intermediate, hidden, gated, rows, add_to_residual);
    }
    for (int64_t i = 0; i < step.num_logit_rows; i++)
        rms_norm(residual + step.logit_rows[i] * hidden, m.final_norm, m.eps, hidden, input + i * hidden);
    if (step.last_hidden) memcpy(step.last_hidden, input, step.num_logit_rows * hidden * sizeof(bf16));
    linear(e.team, m.head, hidden, m.vocab, input, step.num_logit_rows,
           [&](int64_t r, int64_t group_index, v16 a, v16 b) {
               store(step.logits + r * m.vocab + group_index * GROUP * LANES, a);
               store(step.logits + r * m.vocab + group_index * GROUP * LANES + LANES, b);
           });
}

extern "C" {

// source [N][K] row-major -> packed. stride 2, offset 0 or 1 interleave two weights by blocks of 16 outputs.
void pilotfish_pack(const bf16* source, int64_t outputs, int64_t inputs, int64_t stride, int64_t offset, bf16* packed) {
    for (int64_t n = 0; n < outputs; n++)
        for (int64_t k = 0; k < inputs; k++) packed[packed_index(n, k, inputs, stride, offset)] = source[n * inputs + k];
}

void* pilotfish_create(const Model* model, int threads) { return new Engine(*model, threads); }
void pilotfish_destroy(void* engine) { delete (Engine*)engine; }

void pilotfish_set_pools(void* engine, bf16* const* keys, bf16* const* values) {
    Engine& e = *(Engine*)engine;
    for (size_t i = 0; i < e.layers.size(); i++) {
        e.layers[i].keys = keys[i];
        e.layers[i].values = values[i];
    }
}

void pilotfish_forward(void* engine, const Step* step) { forward(*(Engine*)engine, *step); }
}
