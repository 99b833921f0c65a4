// One forward of a Llama-style decoder over a paged KV cache, for CPUs.
//
// Why not a stack of library calls: a decode step is bound by reading the weights once, and some
// twenty small operations a layer cost as much again. Here a step is one call. Every row is computed
// by the same instructions in the same order whatever else is in the step, so the results do not
// depend on the batch: no reduction crosses rows, and a row's sums never depend on tile sizes.
//
// Legend: T rows, K inputs and N outputs of a linear, H query heads, H_kv key/value heads, D head size.
// Layouts (weights in weights.h, keys and values by store_kv):
//   keys     [block][H_kv][D / 2][16 tokens][2] bfloat16: the same shape, so scores are a small linear
//   values   [block][H_kv][16 tokens][D] bfloat16
#include "eagle3.h"
#include "exit.h"
#include "layer.h"
#include "tile_check.h"

static void forward(Engine& e, const Step& step) {
    const Model& m = e.model;
    const int64_t rows = step.rows, hidden = m.hidden;
    Workspace& w = e.workspace;
    w.resize(m, step, hidden);
    embed_rows(m, step, w);
    run_layers(e.team, m, e.layers.data(), m.num_layers, step, w);
    // What leaves the last layer, normed, counts as what would enter one more.
    for (int64_t f = 0; f < step.num_captured; f++) {
        if (step.captured_layers[f] != m.num_layers) continue;
        each_row(e.team, rows, [&](int64_t r) {
            bf16* feature = step.features + (r * step.num_captured + f) * hidden;
            rms_norm(w.residual.data() + r * hidden, m.final_norm, m.eps, hidden, feature);
        });
    }
    run_output(e.team, m, step, w);
    if (step.last_hidden) memcpy(step.last_hidden, w.input.data(), step.num_logit_rows * hidden * sizeof(bf16));
    e.team.settle();
}

extern "C" {

// Whether linears use tiles, the processor's or emulated ones: they sum in another order than vectors do.
int pilotfish_uses_tiles() {
#if defined(PILOTFISH_TILES)
    return 1;
#else
    return 0;
#endif
}

// How many outputs of linears by tiles are not as they should be; -1: there are no tiles. Needs Linux's permission.
int64_t pilotfish_check_tiles() {
#if defined(PILOTFISH_TILES)
    return count_tile_differences<Tiles>();
#else
    return -1;
#endif
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

void pilotfish_move_kv(void* engine, const int64_t (*moves)[2], int64_t count) {
    Engine& e = *(Engine*)engine;
    e.team.run(e.layers.size(), [&](int layer) { move_kv(e.model, e.layers[layer], moves, count); });
}

// The target must outlive its head.
void* pilotfish_create_head(void* target, const Head* head) { return new HeadEngine(*head, *(Engine*)target); }
void pilotfish_destroy_head(void* head) { delete (HeadEngine*)head; }

void pilotfish_set_head_pool(void* head, bf16* keys, bf16* values) {
    ((HeadEngine*)head)->layer.keys = keys;
    ((HeadEngine*)head)->layer.values = values;
}

void pilotfish_forward_head(void* head, const HeadStep* step) { forward_head(*(HeadEngine*)head, *step); }

// The target must outlive its exit.
void* pilotfish_create_exit(void* target, const Exit* exit) { return new ExitEngine(*exit, *(Engine*)target); }
void pilotfish_destroy_exit(void* exit) { delete (ExitEngine*)exit; }

void pilotfish_set_exit_pool(void* exit, bf16* keys, bf16* values) {
    for (Layer& block : ((ExitEngine*)exit)->block) block.keys = keys, block.values = values;
}

void pilotfish_forward_exit(void* exit, const Step* step, const bf16* states) { forward_exit(*(ExitEngine*)exit, *step, states); }
}
