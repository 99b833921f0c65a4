// Linears by emulated tiles: how many outputs the check of tiles finds wrong, of right ones and of ones with a fault, and
// how far their sums are from exact ones, as a share of their root mean square.
#include <cstdio>

#include "tile_check.h"

// Sums begin with what was there before.
struct StaleTiles : EmulatedTiles {
    template <int TILE>
    static void zero() {}
};

// One output of each is nearly right.
struct RoundedOtherwise : EmulatedTiles {
    template <int SUMS, int INPUTS, int WEIGHTS>
    static void dot() {
        EmulatedTiles::dot<SUMS, INPUTS, WEIGHTS>();
        float sums[TILE_ROWS][LANES];
        store<SUMS>(sums, sizeof(sums[0]));
        for (auto& row : sums) row[0] *= 1 + 0x1p-23f;
        load<SUMS>(sums, sizeof(sums[0]));
    }
};

static double largest_error(int64_t inputs) {
    Team team(1);
    Random random;
    const CheckedLinear checked(random, BFLOAT16, inputs, 960, false);
    const std::vector<float> y = checked.outputs_of<EmulatedTiles>(team, MOST_CHECKED_ROWS);
    std::vector<float> weights(inputs);
    double largest = 0, squares = 0;
    for (int64_t n = 0; n < checked.outputs; n++) {
        load_output(checked.packed(), n, inputs, weights.data());
        for (int64_t row = 0; row < MOST_CHECKED_ROWS; row++) {
            double exact = 0;
            for (int64_t k = 0; k < inputs; k++) exact += (double)to_float(checked.x[row * inputs + k]) * weights[k];
            largest = std::max(largest, std::abs(y[row * checked.outputs + n] - exact));
            squares += exact * exact;
        }
    }
    return largest / std::sqrt(squares / y.size());
}

int main() {
    printf("right %ld\n", (long)count_tile_differences<EmulatedTiles>());
    printf("stale %ld\n", (long)count_tile_differences<StaleTiles>());
    printf("rounded otherwise %ld\n", (long)count_tile_differences<RoundedOtherwise>());
    for (const int64_t inputs : {576, 1536}) printf("error %ld %g\n", (long)inputs, largest_error(inputs));
}
