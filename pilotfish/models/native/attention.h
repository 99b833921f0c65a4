// Attention over the paged KV cache (layouts in kernels.cpp).
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kv_cache.h"
#include "model.h"

constexpr int MAX_SCORED_HEADS = REGISTER_BYTES == 64 ? 6 : 2;  // their sums stay in registers
constexpr int SCORED_BLOCKS = REGISTER_BYTES == 64 ? 2 : 1;     // at a time: a product waits for the one before it in its sum
constexpr int MAX_SUMMED_HEADS = REGISTER_BYTES == 64 ? 6 : 2;
// Of each 32 dimensions, sums hold the even ones first: so the values need no more than a shift and a mask.
constexpr int LINE = 2 * LANES;
constexpr int MAX_SUMMED_LINES = REGISTER_BYTES == 64 ? 2 : 1;

// Scores of HEADS query heads over BLOCKS blocks of keys, the same for any number of either: each has two sums, of even
// and of odd pairs. scores is [HEADS][stride].
template <int HEADS, int BLOCKS>
static void score_blocks(const bf16* const* keys, int64_t num_pairs, const uint32_t* query, float* scores, int64_t stride) {
    v16 even[HEADS][BLOCKS], odd[HEADS][BLOCKS];
    for (int g = 0; g < HEADS; g++)
        for (int b = 0; b < BLOCKS; b++) even[g][b] = odd[g][b] = v16{};
    for (int64_t i = 0; i < num_pairs; i += 2)
        for (int g = 0; g < HEADS; g++)
            for (int b = 0; b < BLOCKS; b++) {
                even[g][b] = dot_pairs(even[g][b], keys[b] + i * BLOCK * 2, query[g * num_pairs + i]);
                odd[g][b] = dot_pairs(odd[g][b], keys[b] + (i + 1) * BLOCK * 2, query[g * num_pairs + i + 1]);
            }
    for (int g = 0; g < HEADS; g++)
        for (int b = 0; b < BLOCKS; b++) store(scores + g * stride + b * BLOCK, even[g][b] + odd[g][b]);
}

// The same for any number of heads.
template <int BLOCKS, int... HEADS>
static void score_heads(const bf16* const* keys, int64_t num_pairs, const uint32_t* query, int64_t heads, float* scores,
                        int64_t stride, std::integer_sequence<int, HEADS...>) {
    static constexpr decltype(&score_blocks<1, BLOCKS>) functions[] = {score_blocks<HEADS + 1, BLOCKS>...};
    for (int64_t g = 0; g < heads; g += MAX_SCORED_HEADS)
        functions[std::min<int64_t>(MAX_SCORED_HEADS, heads - g) - 1](keys, num_pairs, query + g * num_pairs,
                                                                     scores + g * stride, stride);
}

// In place over count scores (a multiple of 16). Summed in ascending order, masked scores as exact zeros.
static inline void softmax(float* s, int64_t count) {
    v16 most = load(s);
    for (int64_t j = LANES; j < count; j += LANES) most = larger(load(s + j), most);
    const float largest = largest_of(most);
    v16 total{};
    for (int64_t j = 0; j < count; j += LANES) {
        v16 x = load(s + j);
        v16 e = exp_nonpositive(x - largest);
        e = select(x == -INFINITY, v16{}, e);
        store(s + j, e);
        total += e;
    }
    const float inverse = 1.0f / sum(total);
    for (int64_t j = 0; j < count; j += LANES) store(s + j, load(s + j) * inverse);
}

// A node's ancestors lie between other nodes. Scores and values are taken in the order of its text, as if the path had
// been decoded token by token: that keeps every sum, and so every bit, the same. A score does not depend on where its
// key lies.
static void order_scores(const Step& step, int64_t row, int64_t first_place, float* scores) {
    const int64_t root = step.roots[row] - first_place;
    int64_t to = root;
    // In place: an ancestor never lies before its turn.
    for (uint64_t left = step.ancestors[row] & ~1ull; left; left &= left - 1)
        if (++to >= 0) scores[to] = scores[root + __builtin_ctzll(left)];
}

// Adds the values from a block of the node's text on to sums [G][D]; scores: [G][stride] from first_block on.
static void add_path_values(const Model& m, const Layer& layer, const Step& step, int64_t row, const int64_t* table,
                            int64_t kv_head, int64_t block, int64_t first_block, const float* scores, int64_t stride,
                            float* sums) {
    const int64_t root = step.roots[row], position = step.positions[row], dim = m.head_dim;
    const bf16* values[BLOCK + 64];  // by position, from the block on
    const int64_t first = (first_block + block) * BLOCK;
    auto value_at = [&](int64_t place) {
        return layer.values + ((table[place / BLOCK] * m.kv_heads + kv_head) * BLOCK + place % BLOCK) * dim;
    };
    for (int64_t p = first; p <= root; p++) values[p - first] = value_at(p);
    int64_t p = root;
    for (uint64_t left = step.ancestors[row] & ~1ull; left; left &= left - 1)
        if (++p >= first) values[p - first] = value_at(root + __builtin_ctzll(left));
    for (int64_t g = 0; g < m.heads / m.kv_heads; g++) {
        const float* s = scores + g * stride + block * BLOCK;
        int64_t d = 0;
        for (; d + LINE <= dim; d += LINE) {
            v16 even = load(sums + g * dim + d), odd = load(sums + g * dim + d + LANES);
            for (int64_t i = 0; i <= position - first; i++) {
                const v16u line = load_words(values[i] + d);
                even += even_bf16(line) * s[i];
                odd += odd_bf16(line) * s[i];
            }
            store(sums + g * dim + d, even);
            store(sums + g * dim + d + LANES, odd);
        }
        if (d == dim) continue;
        v16 rest = load(sums + g * dim + d);
        for (int64_t i = 0; i <= position - first; i++) rest += load_bf16(values[i] + d) * s[i];
        store(sums + g * dim + d, rest);
    }
}

// Sums [HEADS][LINES of 32] of values, key after key from block begin to end, whatever HEADS is. They stay in registers
// all the way. block_at(b) is [16][dim] from the first line on, scores [HEADS][stride] from block 0 on.
template <int HEADS, int LINES, class BlockAt>
static void sum_lines(const BlockAt& block_at, int64_t begin, int64_t end, int64_t dim, const float* scores, int64_t stride,
                      float* sums) {
    v16 even[HEADS][LINES], odd[HEADS][LINES];
    for (int g = 0; g < HEADS; g++)
        for (int i = 0; i < LINES; i++) even[g][i] = odd[g][i] = v16{};
    for (int64_t b = begin; b < end; b++) {
        const bf16* v = block_at(b);
        const float* s = scores + b * BLOCK;
        for (int t = 0; t < BLOCK; t++, v += dim, s++)
            for (int i = 0; i < LINES; i++) {
                const v16u line = load_words(v + i * LINE);
                const v16 even_values = even_bf16(line), odd_values = odd_bf16(line);
                for (int g = 0; g < HEADS; g++) {
                    even[g][i] += even_values * s[g * stride];
                    odd[g][i] += odd_values * s[g * stride];
                }
            }
    }
    for (int g = 0; g < HEADS; g++)
        for (int i = 0; i < LINES; i++) {
            store(sums + g * dim + i * LINE, even[g][i]);
            store(sums + g * dim + i * LINE + LANES, odd[g][i]);
        }
}

// The 16 dimensions that make no line.
template <int HEADS, class BlockAt>
static void sum_rest(const BlockAt& block_at, int64_t begin, int64_t end, int64_t dim, const float* scores, int64_t stride,
                     float* sums) {
    v16 acc[HEADS];
    for (int g = 0; g < HEADS; g++) acc[g] = v16{};
    for (int64_t b = begin; b < end; b++)
        for (int t = 0; t < BLOCK; t++) {
            const v16 values = load_bf16(block_at(b) + t * dim);
            for (int g = 0; g < HEADS; g++) acc[g] += values * scores[g * stride + b * BLOCK + t];
        }
    for (int g = 0; g < HEADS; g++) store(sums + g * dim, acc[g]);
}

template <int HEADS, class BlockAt>
static void sum_heads(const BlockAt& block_at, int64_t begin, int64_t end, int64_t dim, const float* scores, int64_t stride,
                      float* sums) {
    int64_t d = 0;
    const auto from_d = [&](int64_t b) { return block_at(b) + d; };
    for (; d + MAX_SUMMED_LINES * LINE <= dim; d += MAX_SUMMED_LINES * LINE)
        sum_lines<HEADS, MAX_SUMMED_LINES>(from_d, begin, end, dim, scores, stride, sums + d);
    for (; d + LINE <= dim; d += LINE) sum_lines<HEADS, 1>(from_d, begin, end, dim, scores, stride, sums + d);
    if (d < dim) sum_rest<HEADS>(from_d, begin, end, dim, scores, stride, sums + d);
}

// The same for any number of heads.
template <class BlockAt, int... HEADS>
static void sum_values(const BlockAt& block_at, int64_t begin, int64_t end, int64_t dim, const float* scores, int64_t stride,
                       int64_t heads, float* sums, std::integer_sequence<int, HEADS...>) {
    typedef void (*Sum)(const BlockAt&, int64_t, int64_t, int64_t, const float*, int64_t, float*);
    static constexpr Sum functions[] = {sum_heads<HEADS + 1, BlockAt>...};
    for (int64_t g = 0; g < heads; g += MAX_SUMMED_HEADS)
        functions[std::min<int64_t>(MAX_SUMMED_HEADS, heads - g) - 1](block_at, begin, end, dim, scores + g * stride, stride,
                                                                     sums + g * dim);
}

static void store_sums(const float* sums, int64_t dim, bf16* out) {
    int64_t d = 0;
    for (; d + LINE <= dim; d += LINE) store_words(out + d, to_bf16_words(load(sums + d), load(sums + d + LANES)));
    if (d < dim) store_bf16(out + d, load(sums + d));
}

// The keys that a thread reads after those at hand: the table of their blocks (null: they are at hand) and their head.
struct NextKeys {
    const int64_t* table;
    int64_t kv_head;
};

// A tile's rows, one key/value head, its G query heads. Each row does exactly what it would do alone; rows only
// share the loads of a block.
static void attend(const Model& m, const Layer& layer, const Step& step, const Tile& tile, int64_t kv_head, const NextKeys& next,
                   const float* queries, int64_t query_stride, bf16* out, int64_t out_stride, std::vector<float>& scratch) {
    const int64_t group = m.heads / m.kv_heads, dim = m.head_dim, rows = tile.num_rows;
    const int64_t* table = step.tables + step.row_table[tile.first_row] * step.table_width;
    const int64_t* positions = step.positions + tile.first_row;
    auto first_key = [&](int64_t r) {
        const int64_t first = layer.window && positions[r] >= layer.window ? positions[r] - layer.window + 1 : 0;
        return std::max(first, std::min(layer.first_key, positions[r]));
    };
    int64_t first_block = INT64_MAX, last_block = 0;
    for (int64_t r = 0; r < rows; r++) {
        first_block = std::min(first_block, first_key(r) / BLOCK);
        last_block = std::max(last_block, step.place(tile.first_row + r) / BLOCK);
    }
    const int64_t blocks = last_block - first_block + 1, stride = blocks * BLOCK;
    scratch.resize(rows * group * (stride + dim + dim / 2) + 64);
    float* scores = scratch.data();                  // [rows][G][stride]
    float* sums = scores + rows * group * stride;      // [rows][G][D]
    uint32_t* pairs = (uint32_t*)(sums + rows * group * dim);  // [rows][G][D / 2]
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < group * dim; i++)
            ((bf16*)pairs)[r * group * dim + i] = to_bf16(queries[r * query_stride + i] * m.scale);
    // A row's own blocks, counted from the tile's first: those of its text, and those that hold the keys it sees.
    auto begin_block = [&](int64_t r) { return first_key(r) / BLOCK - first_block; };
    auto end_block = [&](int64_t r) { return positions[r] / BLOCK - first_block + 1; };
    auto end_place = [&](int64_t r) { return step.place(tile.first_row + r) / BLOCK - first_block + 1; };
    // They lie anywhere in the pool: the hardware does not see the next one coming.
    constexpr int64_t AHEAD = 8;  // blocks whose keys are on their way from memory
    const auto keys_at = [&](int64_t block, int64_t head) { return layer.keys + (block * m.kv_heads + head) * dim * BLOCK; };
    const auto block_keys = [&](int64_t b) { return keys_at(table[first_block + b], kv_head); };
    const auto value_block = [&](int64_t b) {
        return layer.values + (table[first_block + b] * m.kv_heads + kv_head) * BLOCK * dim;
    };
    for (int64_t b = 0; b < std::min(AHEAD, blocks); b++) prefetch(block_keys(b), dim * BLOCK);
    for (int64_t b = 0; b < blocks; b += SCORED_BLOCKS) {
        const bf16* keys[SCORED_BLOCKS];
        const int64_t last = std::min(blocks, b + SCORED_BLOCKS);
        for (int64_t i = b; i < last; i++) {
            keys[i - b] = block_keys(i);
            if (i + AHEAD < blocks) prefetch(block_keys(i + AHEAD), dim * BLOCK);
            prefetch(value_block(i), dim * BLOCK);
        }
        // Heads of all rows that see the same of these blocks share the loads of keys.
        const auto first_seen = [&](int64_t r) { return std::max(b, begin_block(r)); };
        const auto end_seen = [&](int64_t r) { return std::min(last, end_place(r)); };
        for (int64_t r = 0, until; r < rows; r = until) {
            const int64_t first = first_seen(r), end = end_seen(r);
            for (until = r + 1; until < rows && first_seen(until) == first && end_seen(until) == end;) until++;
            const auto score = [&](auto count) {
                score_heads<count>(keys + (first - b), dim / 2, pairs + r * group * dim / 2, (until - r) * group,
                                   scores + r * group * stride + first * BLOCK, stride,
                                   std::make_integer_sequence<int, MAX_SCORED_HEADS>());
            };
            if (end - first == SCORED_BLOCKS) score(std::integral_constant<int, SCORED_BLOCKS>());
            else if (end - first == 1) score(std::integral_constant<int, 1>());
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t begin = begin_block(r) * BLOCK, end = end_block(r) * BLOCK;
        const int64_t first = first_key(r) - first_block * BLOCK, last = positions[r] - first_block * BLOCK;
        for (int64_t g = 0; g < group; g++) {
            float* s = scores + (r * group + g) * stride;
            if (step.is_node(tile.first_row + r)) order_scores(step, tile.first_row + r, first_block * BLOCK, s);
            for (int64_t j = begin; j < first; j++) s[j] = -INFINITY;
            for (int64_t j = last + 1; j < end; j++) s[j] = -INFINITY;
            softmax(s + begin, end - begin);
        }
    }
    // Blocks whose values are summed as they lie: of a node those before the first that its path could change.
    auto end_in_order = [&](int64_t r) {
        const int64_t row = tile.first_row + r;
        return step.is_node(row) ? (step.roots[row] + 1) / BLOCK - first_block : end_block(r);
    };
    // Summing leaves the memory at rest: it brings the next keys meanwhile. Too many or few where texts differ in length.
    const auto summed_block = [&](int64_t b) {
        if (next.table) prefetch(keys_at(next.table[first_block + b], next.kv_head), dim * BLOCK);
        return value_block(b);
    };
    // Heads of all rows that see the same blocks share the loads of values.
    for (int64_t r = 0, until; r < rows; r = until) {
        const int64_t begin = begin_block(r), end = end_in_order(r);
        for (until = r + 1; until < rows && begin_block(until) == begin && end_in_order(until) == end;) until++;
        sum_values(summed_block, begin, end, dim, scores + r * group * stride, stride,
                   (until - r) * group, sums + r * group * dim, std::make_integer_sequence<int, MAX_SUMMED_HEADS>());
    }
    for (int64_t r = 0; r < rows; r++)
        if (step.is_node(tile.first_row + r))
            add_path_values(m, layer, step, tile.first_row + r, table, kv_head, std::max(begin_block(r), end_in_order(r)),
                            first_block, scores + r * group * stride, stride, sums + r * group * dim);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < group; g++) store_sums(sums + (r * group + g) * dim, dim, out + r * out_stride + g * dim);
}

// Rows of the same sequence in tiles: small ones leave work for every thread when rows are few.
static void cut_into_tiles(const Step& step, std::vector<Tile>& tiles) {
    const int64_t most = step.rows <= 16 ? 4 : 8;
    tiles.clear();
    for (int64_t r = 0; r < step.rows; r++) {
        const bool continues = !tiles.empty() && tiles.back().num_rows < most && step.row_table[r] == step.row_table[r - 1];
        if (continues) tiles.back().num_rows++;
        else tiles.push_back({r, 1});
    }
}
