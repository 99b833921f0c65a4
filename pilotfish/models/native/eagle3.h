// An EAGLE-3 head (2503.01840): one decoder layer whose rows are a token's embedding beside a hidden state.
#pragma once
#include <cstring>

#include "layer.h"

// Mirrors the ctypes struct of eagle3.py. model.layers is the one layer, model.head the output projection over the
// draft vocabulary; model.embedding null: the target's.
struct Head {
    Model model;
    const bf16* hidden_norm;
    Weights fusion;
    int64_t fused_width;  // inputs of the fusion: features of three layers
};

struct HeadStep {
    Step step;
    const bf16* states;  // [T][fused_width] features, or [T][hidden] what the head gave for the token before
    int64_t are_features;
    bf16* hidden;  // [R][hidden] out, before the norm
};

struct HeadEngine {
    Head head;
    Layer layer;
    Engine& target;  // lends its threads, and its embedding where the head has none
    Workspace workspace;
    HeadEngine(const Head& h, Engine& t) : head(h), layer(*h.model.layers), target(t) {}
};

static void forward_head(HeadEngine& e, const HeadStep& head_step) {
    const Model& m = e.head.model;
    const Step& step = head_step.step;
    const int64_t rows = step.rows, hidden = m.hidden;
    Team& team = e.target.team;
    Workspace& w = e.workspace;
    w.resize(m, step, 2 * hidden, e.head.fused_width);
    float* residual = w.residual.data();
    if (head_step.are_features) {
        linear(team, e.head.fusion, e.head.fused_width, hidden, head_step.states, w.rounded.data(), rows,
               [&](int64_t r, int64_t group_index, v16 a, v16 b) {
                   store(residual + r * hidden + group_index * GROUP * LANES, a);
                   store(residual + r * hidden + group_index * GROUP * LANES + LANES, b);
               });
    } else {
        for (int64_t i = 0; i < rows * hidden; i++) residual[i] = to_float(head_step.states[i]);
    }
    each_row(team, rows, [&](int64_t r) {
        thread_local std::vector<float> embedding;
        embedding.resize(hidden);
        embed(m.embedding ? m : e.target.model, step.token_ids[r], embedding.data());
        bf16* input = w.input.data() + r * 2 * hidden;
        rms_norm(embedding.data(), e.layer.input_norm, m.eps, hidden, input);
        rms_norm(residual + r * hidden, e.head.hidden_norm, m.eps, hidden, input + hidden);
    });
    run_last_layer(team, m, e.layer, step, 2 * hidden, w);
    for (int64_t i = 0; i < step.num_logit_rows * hidden; i += LANES) store_bf16(head_step.hidden + i, load(residual + i));
    run_output(team, m, step, w, true);
    team.settle();
}
