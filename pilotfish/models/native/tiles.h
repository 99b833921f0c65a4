// Tiles of AMX: registers of up to 16 rows of 64 bytes, and a product of two of them added to a third.
//
// PILOTFISH_TILES says what linears use: none (not defined), the processor's (1), or their emulation (2), which computes
// the same bits anywhere: tests run on it, and tile_check.h compares the processor with it.
//
// Order of sums, as measured on an Intel Xeon: of 32 inputs the first ones of pairs and the second ones are two chains of
// fused additions, from 0; the two are added, and that to the sum. Subnormal numbers count as zeros, before and after
// each operation.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "vector.h"

constexpr int TILE_ROWS = 16;
constexpr int TILE_ROW_BYTES = 64;

#if defined(PILOTFISH_TILES)
// Subnormal numbers count as zeros while it lives, in the calling thread's vectors as in tiles.
class FlushSubnormals {
  public:
    FlushSubnormals() : before_(_mm_getcsr()) { set(before_ | 0x8040); }
    ~FlushSubnormals() { set(before_); }

  private:
    // The compiler moves no memory access past it, so no arithmetic between loads and stores either.
    static void set(uint32_t state) { asm volatile("ldmxcsr %0" ::"m"(state) : "memory"); }
    const uint32_t before_;
};

// Tiles 0 to 3 are sums, 4 and 5 inputs, 6 and 7 weights.
// The instructions by hand: GCC's _tile_loadd does not say that it reads memory, and stores before it may move.
struct ProcessorTiles {
    // For row tiles of so many rows, 1 to 16: one of none is a fault. Kept until release, as it costs more than a product.
    static void configure(int rows) {
        if (configured_rows == rows) return;
        configured_rows = rows;
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {};
            uint8_t rows[16] = {};
        } config;
        for (int tile = 0; tile < 8; tile++) config.row_bytes[tile] = TILE_ROW_BYTES, config.rows[tile] = tile < 6 ? rows : TILE_ROWS;
        asm volatile("ldtilecfg %0" ::"m"(config));
    }
    // Other code may use tiles in this thread, as torch does, and leave them otherwise: a product would then be a fault.
    static void release() {
        if (configured_rows) asm volatile("tilerelease" ::);
        configured_rows = 0;
    }
    template <int TILE>
    static void zero() {
        asm volatile("tilezero %%tmm%c0" ::"i"(TILE));
    }
    template <int TILE>
    static void load(const void* from, int64_t stride) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(TILE) : "memory");
    }
    template <int TILE>
    static void store(void* to, int64_t stride) {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(TILE) : "memory");
    }
    template <int SUMS, int INPUTS, int WEIGHTS>
    static void dot() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(INPUTS), "i"(WEIGHTS));
    }

  private:
    static inline thread_local int configured_rows = 0;
};

struct EmulatedTiles {
    static void configure(int rows) {
        if (rows < 1 || rows > TILE_ROWS) abort();
        configured_rows = rows;
    }
    static void release() { configured_rows = 0; }
    template <int TILE>
    static void zero() {
        memset(tiles[TILE], 0, sizeof(tiles[TILE]));
    }
    template <int TILE>
    static void load(const void* from, int64_t stride) {
        for (int row = 0; row < num_rows(TILE); row++) memcpy(tiles[TILE][row], (const char*)from + row * stride, TILE_ROW_BYTES);
    }
    template <int TILE>
    static void store(void* to, int64_t stride) {
        for (int row = 0; row < num_rows(TILE); row++) memcpy((char*)to + row * stride, tiles[TILE][row], TILE_ROW_BYTES);
    }
    template <int SUMS, int INPUTS, int WEIGHTS>
    static void dot() {
        const FlushSubnormals flush;
        for (int row = 0; row < num_rows(SUMS); row++) {
            float chains[2][LANES] = {};
            for (int line = 0; line < BLOCK_PAIRS; line++)
                for (int half = 0; half < 2; half++) {
                    const float input = number(tiles[INPUTS][row][line], half);
                    for (int i = 0; i < LANES; i++) chains[half][i] = std::fma(number(tiles[WEIGHTS][line][i], half), input, chains[half][i]);
                }
            for (int i = 0; i < LANES; i++) {
                float sum;
                memcpy(&sum, &tiles[SUMS][row][i], sizeof sum);
                sum += chains[0][i] + chains[1][i];
                memcpy(&tiles[SUMS][row][i], &sum, sizeof sum);
            }
        }
    }

  private:
    static constexpr int BLOCK_PAIRS = TILE_ROWS;
    static int num_rows(int tile) {
        if (!configured_rows) abort();
        return tile < 6 ? configured_rows : TILE_ROWS;
    }
    static float number(uint32_t pair, int half) { return to_float((bf16)(pair >> (16 * half))); }
    static inline thread_local int configured_rows = 0;
    static inline thread_local uint32_t tiles[8][TILE_ROWS][LANES];
};

#if PILOTFISH_TILES == 1
typedef ProcessorTiles Tiles;
#else
typedef EmulatedTiles Tiles;
#endif
#else
// Linears use none.
struct Tiles {
    static void release() {}
};
#endif
