// Whether tiles give the bits that their emulation gives: asked before a processor's are used (amx.py).
#pragma once
#include "linear.h"

#if defined(PILOTFISH_TILES)
constexpr int64_t MOST_CHECKED_ROWS = 40;
constexpr int64_t CHECKED_ROWS[] = {1, 3, 16, 17, MOST_CHECKED_ROWS};

// The same numbers everywhere.
class Random {
  public:
    uint32_t below(uint32_t count) { return next() % count; }
    // Of exponents from 2^lowest on, half of them negative.
    bf16 number(int lowest, int num_exponents) {
        const uint32_t exponent = 127 + lowest + below(num_exponents);
        return below(2) << 15 | exponent << 7 | below(128);
    }

  private:
    uint32_t next() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return state_ >> 33;
    }
    uint64_t state_ = 20408;
};

// A linear of one format, with inputs for MOST_CHECKED_ROWS rows.
struct CheckedLinear {
    int64_t format, inputs, outputs;
    bool is_tiny;  // whether products are subnormal numbers, or nearly
    std::vector<char> weights;
    std::vector<bf16> x;

    CheckedLinear(Random& random, int64_t format, int64_t inputs, int64_t outputs, bool is_tiny)
        : format(format), inputs(inputs), outputs(outputs), is_tiny(is_tiny), x(MOST_CHECKED_ROWS * inputs) {
        // Some inputs are subnormal where products are tiny: an exponent of -127 means that.
        for (bf16& input : x) input = is_tiny && !random.below(9) ? random.number(-127, 1) : random.number(is_tiny ? -66 : -10, 9);
        const Weights w = packed();
        weights.resize(w.group(outputs / GROUP_OUTPUTS, inputs) - (const char*)w.data);
        if (format == BFLOAT16) {
            for (int64_t i = 0; i < inputs * outputs; i++) ((bf16*)weights.data())[i] = random.number(is_tiny ? -66 : -10, 9);
            return;
        }
        // Scales and minima from 2^-11 on; all else is a weight.
        const int64_t num_scales = (format == INT4 ? 2 : 1) * GROUP_OUTPUTS;
        for (size_t at = 0; at < weights.size(); at += w.block_bytes()) {
            for (int64_t i = 0; i < w.block_bytes(); i++) weights[at + i] = random.below(256);
            for (int64_t i = 0; i < num_scales; i++) ((float16*)&weights[at])[i] = 0x1000 + random.below(0x800);
        }
    }

    Weights packed() const { return {weights.data(), format, false}; }

    // [rows][outputs]
    template <class T>
    std::vector<float> outputs_of(Team& team, int64_t rows) const {
        std::vector<float> y(rows * outputs);
        linear<T>(team, packed(), inputs, outputs, x.data(), nullptr, rows, [&](int64_t row, int64_t group, v16 a, v16 b) {
            store(&y[row * outputs + group * GROUP_OUTPUTS], a);
            store(&y[row * outputs + group * GROUP_OUTPUTS + LANES], b);
        });
        team.settle();
        return y;
    }
};

// How many outputs of a few linears differ in any bit from those that the emulation gives for 40 rows, whatever the rows.
template <class T>
static int64_t count_tile_differences() {
    Team team(2, T::release);
    Random random;
    int64_t count = 0;
    const auto check = [&](const CheckedLinear& checked) {
        const std::vector<float> expected = checked.outputs_of<EmulatedTiles>(team, MOST_CHECKED_ROWS);
        for (const int64_t rows : CHECKED_ROWS) {
            const std::vector<float> found = checked.outputs_of<T>(team, rows);
            for (size_t i = 0; i < found.size(); i++) count += memcmp(&found[i], &expected[i], sizeof(float)) != 0;
        }
    };
    for (const int64_t inputs : {32, 48, 624, 1040}) {  // 16 of them are half a block
        check(CheckedLinear(random, BFLOAT16, inputs, 160, false));
        check(CheckedLinear(random, BFLOAT16, inputs, 160, true));
    }
    for (const int64_t format : {INT8, INT4}) check(CheckedLinear(random, format, 640, 160, false));
    return count;
}
#endif
