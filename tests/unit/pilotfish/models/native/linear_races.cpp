// Linears that feed one another, by a team far larger than the machine: for ThreadSanitizer, which ends a program that
// has a race with an exit status of its own.
#include <vector>

#include "linear.h"

constexpr int THREADS = 8, STEPS = 20, LINEARS = 8;
constexpr int64_t SIZE = 512, ROWS = 4;

int main() {
    Team team(THREADS);
    const std::vector<bf16> weights(SIZE * SIZE, 0x3c00);
    std::vector<InputBlock> rounded(ROWS * SIZE / BLOCK_INPUTS);
    std::vector<bf16> x(ROWS * SIZE, 0x3f80);
    std::vector<float> y(ROWS * SIZE);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LINEARS; i++) {
            const Weights w = i % 2 ? Weights{weights.data(), INT8, true} : Weights{weights.data(), BFLOAT16, false};
            linear(team, w, SIZE, SIZE, x.data(), rounded.data(), ROWS, [&](int64_t row, int64_t group, v16 a, v16 b) {
                float* out = y.data() + row * SIZE + group * GROUP_OUTPUTS;
                store(out, a);
                store(out + LANES, b);
            });
            for (int64_t at = 0; at < ROWS * SIZE; at += LANES) store_bf16(x.data() + at, load(y.data() + at));
        }
        team.settle();
    }
}
