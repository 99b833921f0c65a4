// The first layers of a target as its drafter (LayerSkip 2404.16710, Kangaroo 2404.18911). They write their keys and values
// to the target's own slots.
#pragma once
#include "layer.h"

// Mirrors the ctypes struct of native_exit.py. model.layers is the trained block, if model.num_layers is 1; then come the
// norm and the output projection, trained as well or the target's.
struct Exit {
    Model model;
    int64_t num_layers;  // of the target
};

struct ExitEngine {
    Exit exit;
    std::vector<Layer> block;
    Engine& target;  // lends its layers, its embedding and its threads
    Workspace workspace;
    ExitEngine(const Exit& x, Engine& t) : exit(x), block(x.model.layers, x.model.layers + x.model.num_layers), target(t) {}
};

// states: [T][hidden] what has left the target's layers, which are then not run; or null.
static void forward_exit(ExitEngine& e, const Step& step, const bf16* states) {
    const Model& m = e.exit.model;
    Team& team = e.target.team;
    Workspace& w = e.workspace;
    w.resize(m, step, m.hidden);
    if (states) {
        for (int64_t i = 0; i < step.rows * m.hidden; i++) w.residual[i] = to_float(states[i]);
    } else {
        embed_rows(e.target.model, step, w);
        run_layers(team, m, e.target.layers.data(), e.exit.num_layers, step, w);
    }
    for (const Layer& block : e.block) {
        each_row(team, step.rows, [&](int64_t r) {
            rms_norm(w.residual.data() + r * m.hidden, block.input_norm, m.eps, m.hidden, w.input.data() + r * m.hidden);
        });
        run_last_layer(team, m, block, step, m.hidden, w);
    }
    run_output(team, m, step, w, !e.block.empty());
    team.settle();
}
