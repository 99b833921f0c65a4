// One forward of a Llama-style decoder over a paged KV cache, for CPUs.
//
// Why not a stack of library calls: a decode step is bound by reading the weights once, and some
// twenty small operations a layer cost as much again. Here a step is one call. Every row is computed
// by the same instructions in the same order whatever else is in the step, so the results do not
// depend on the batch: no reduction crosses rows, and a row's sums never depend on tile sizes.
//
// Legend: T rows, K inputs and N outputs of a linear, H query heads, H_kv key/value heads, D head size.
// Layouts (built by pack_* below):
//   weights  [N / 32][K / 2][2][16][2] bfloat16: for each pair of inputs 32 outputs' pairs are two 64-byte lines,
//            so that a thread reads its share of a linear as one stream
//   keys     [block][H_kv][D / 2][16 tokens][2] bfloat16: the same shape, so scores are a small linear
//   values   [block][H_kv][16 tokens][D] bfloat16
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

typedef float v16 __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
typedef uint32_t v16u __attribute__((vector_size(64)));
typedef v16 v16_unaligned __attribute__((aligned(4)));
typedef uint16_t bf16;

constexpr int LANES = 16;
constexpr int BLOCK = 16;

static inline v16 load(const float* p) { return *(const v16_unaligned*)p; }
static inline void store(float* p, v16 v) { *(v16_unaligned*)p = v; }
static inline v16 splat(float x) { return x - v16{}; }

static inline float sum(v16 v) {  // fixed tree
    float s[16];
    store(s, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}

static inline bf16 to_bf16(float x) {  // round to nearest even; NaN stays NaN
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7fffffff) > 0x7f800000) return (u >> 16) | 0x40;
    return (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}

static inline float to_float(bf16 x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline v16 load_bf16(const bf16* p) {
    typedef uint16_t v16h __attribute__((vector_size(32), aligned(2)));
    return (v16)(__builtin_convertvector(*(const v16h*)p, v16u) << 16);
}

static inline void store_bf16(bf16* p, v16 v) {  // round to nearest even; finite values
    typedef uint16_t v16h __attribute__((vector_size(32)));
    typedef v16h v16h_unaligned __attribute__((aligned(2)));
    v16u u = (v16u)v;
    *(v16h_unaligned*)p = __builtin_convertvector((u + 0x7fff + ((u >> 16) & 1)) >> 16, v16h);
}

// acc[i] += w[i][0] * x[0] + w[i][1] * x[1] for the 16 pairs at w.
static inline v16 dot_pairs(v16 acc, const bf16* w, uint32_t x) {
#if defined(__AVX512BF16__)
    return (v16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_loadu_si512(w), (__m512bh)_mm512_set1_epi32(x));
#else
    typedef v16u v16u_unaligned __attribute__((aligned(2)));
    v16u pairs = *(const v16u_unaligned*)w;
    acc += (v16)(pairs << 16) * to_float(x & 0xffff);
    return acc + (v16)(pairs & 0xffff0000u) * to_float(x >> 16);
#endif
}

// exp(x) for x <= 0, relative error below 2e-7.
static inline v16 exp_nonpositive(v16 x) {
    x = x < -87.0f ? splat(-87.0f) : x;
    v16 scaled = x * 1.44269504088896f;
    v16i exponent = __builtin_convertvector(scaled - 0.5f, v16i);  // toward zero: nearest for x <= 0
    v16 whole = __builtin_convertvector(exponent, v16);
    v16 r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    v16 p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (v16)((exponent + 127) << 23);
}

// ---- Threads: a fixed team that spins briefly between phases, then sleeps. ----

// Longer than the serial work between two phases (microseconds), far shorter than the time between two steps:
// a spinning thread would take the core from the processes that carry the tokens away.
constexpr int SPINS = 3000;

class Team {
  public:
    explicit Team(int size) : size_(size) {
        for (int i = 1; i < size; i++) threads_.emplace_back([this, i] { work(i); });
    }
    ~Team() {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            stop_ = true;
            generation_.fetch_add(1);
        }
        wake_.notify_all();
        for (auto& thread : threads_) thread.join();
    }
    int size() const { return size_; }

    // Runs body(item) for items 0..count-1; items are handed out one by one, so a descheduled thread delays
    // only its own item.
    template <class Body>
    void run(int count, const Body& body) {
        if (size_ == 1 || count == 1) {
            for (int i = 0; i < count; i++) body(i);
            return;
        }
        call_ = [](const void* b, int i) { (*(const Body*)b)(i); };
        body_ = &body;
        count_ = count;
        next_.store(0);
        busy_.store(size_ - 1);
        {
            std::lock_guard<std::mutex> hold(mutex_);
            generation_.fetch_add(1);
        }
        if (sleepers_.load()) wake_.notify_all();
        take();
        for (int spin = 0; busy_.load(std::memory_order_acquire); spin++) relax(spin);
    }

  private:
    void take() {
        for (int i; (i = next_.fetch_add(1)) < count_;) call_(body_, i);
    }
    static void relax(int spin) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (spin > SPINS) std::this_thread::yield();
    }
    void work(int) {
        uint64_t seen = 0;
        for (;;) {
            for (int spin = 0; spin < SPINS && generation_.load(std::memory_order_acquire) == seen; spin++) relax(0);
            if (generation_.load() == seen) {
                std::unique_lock<std::mutex> hold(mutex_);
                sleepers_.fetch_add(1);
                wake_.wait(hold, [&] { return generation_.load() != seen; });
                sleepers_.fetch_sub(1);
            }
            seen++;
            if (stop_) return;
            take();
            busy_.fetch_sub(1, std::memory_order_release);
        }
    }
    const int size_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<uint64_t> generation_{0};
    std::atomic<int> next_{0}, busy_{0}, sleepers_{0};
    bool stop_ = false;
    int count_ = 0;
    void (*call_)(const void*, int) = nullptr;
    const void* body_ = nullptr;
};

// ---- Linears ----

constexpr int GROUP = 2;          // blocks of 16 outputs that lie together
constexpr int MAX_TILE_ROWS = 12;  // 24 accumulators leave vector registers for the weights
constexpr int PREFETCH_BYTES = 4096;

// ROWS rows share each line of weights; sums run over the inputs in order, whatever ROWS is.
template <int ROWS, class Emit>
static inline void linear_tile(const bf16* w, int64_t pairs, const uint32_t* x, int64_t row, int64_t group, const Emit& emit) {
    v16 acc[ROWS][GROUP];
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < GROUP; b++) acc[r][b] = v16{};
    const bf16* line = w + group * pairs * GROUP * 2 * LANES;
    x += row * pairs;
    for (int64_t k = 0; k < pairs; k++, line += GROUP * 2 * LANES) {
        for (int b = 0; b < GROUP; b++) __builtin_prefetch((const char*)(line + b * 2 * LANES) + PREFETCH_BYTES, 0, 2);
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < GROUP; b++) acc[r][b] = dot_pairs(acc[r][b], line + b * 2 * LANES, x[r * pairs + k]);
    }
    for (int r = 0; r < ROWS; r++) emit(row + r, group, acc[r][0], acc[r][1]);
}

// The last rows of a linear, fewer than a full tile: one tile of exactly their number.
template <int ROWS, class Emit>
static inline void linear_rest(const bf16* w, int64_t pairs, const uint32_t* x, int64_t row, int64_t rest, int64_t group, const Emit& emit) {
    if constexpr (ROWS > 0) {
        if (rest == ROWS) linear_tile<ROWS>(w, pairs, x, row, group, emit);
        else linear_rest<ROWS - 1>(w, pairs, x, row, rest, group, emit);
    }
}

// emit(row, group, v16, v16) receives 32 outputs of a row.
template <class Emit>
static void linear(Team& team, const bf16* w, int64_t inputs, int64_t outputs, const bf16* x, int64_t rows, const Emit& emit) {
    const int64_t groups = outputs / (GROUP * LANES), pairs = inputs / 2;
    const int64_t items = std::min<int64_t>(groups, 16 * team.size());
    const uint32_t* packed_x = (const uint32_t*)x;
    team.run(items, [&](int item) {
        for (int64_t group = groups * item / items; group < groups * (item + 1) / items; group++) {
            int64_t r = 0;
            for (; r + MAX_TILE_ROWS <= rows; r += MAX_TILE_ROWS) linear_tile<MAX_TILE_ROWS>(w, pairs, packed_x, r, group, emit);
            linear_rest<MAX_TILE_ROWS - 1>(w, pairs, packed_x, r, rows - r, group, emit);
        }
    });
}

static void rms_norm(const float* x, const bf16* weight, float eps, int64_t size, bf16* out) {
    v16 squares{};
    for (int64_t i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
    for (int64_t i = 0; i < size; i += LANES) store_bf16(out + i, load(x + i) * scale * load_bf16(weight + i));
}

// Where weight [n][k] lies in the packed layout.
static inline int64_t packed_index(int64_t n, int64_t k, int64_t inputs, int64_t stride, int64_t offset) {
    const int64_t block = n / LANES * stride + offset, group = block / GROUP;
    return ((group * (inputs / 2) + k / 2) * GROUP + block % GROUP) * 2 * LANES + n % LANES * 2 + k % 2;
}

// ---- The model ----

struct Layer {
    const bf16 *input_norm, *qkv, *qkv_bias, *query_norm, *key_norm, *output, *post_norm, *gate_up, *down;
    bf16 *keys, *values;
    int64_t window;  // tokens a row sees; 0: all
};

struct Model {
    int64_t hidden, heads, kv_heads, head_dim, intermediate, vocab, num_layers, max_positions;
    float eps, scale;
    const bf16 *embedding, *final_norm, *head;  // embedding null: tied, read from head
    const float *cosine, *sine;  // [max_positions][D / 2]
    const Layer* layers;
};

struct Step {
    int64_t rows, num_logit_rows;
    const int64_t *token_ids, *positions, *slots;   // [T]
    const int64_t *row_table;                       // [T] which block table a row uses
    const int64_t* tables;                          // [S][table_width]
    int64_t table_width;
    const int64_t* logit_rows;                      // [R]
    float* logits;                                  // [R][V]
};

// Consecutive rows of one sequence, which share its keys and values.
struct Tile {
    int64_t first_row, num_rows;
};

struct Engine {
    Model model;
    std::vector<Layer> layers;
    Team team;
    std::vector<float> residual, projected;
    std::vector<bf16> input, attended, gated;
    std::vector<Tile> tiles;
    Engine(const Model& m, int threads) : model(m), layers(m.layers, m.layers + m.num_layers), team(threads) {}
};

// Rotates pairs (i, i + D/2), as transformers does, after an optional per-head norm.
static void rotate(float* head, const bf16* norm, float eps, int64_t dim, const float* cosine, const float* sine) {
    if (norm) {
        float squares = 0;
        for (int64_t i = 0; i < dim; i++) squares += head[i] * head[i];
        const float scale = 1.0f / std::sqrt(squares / dim + eps);
        for (int64_t i = 0; i < dim; i++) head[i] *= scale * to_float(norm[i]);
    }
    for (int64_t i = 0; i < dim / 2; i++) {
        const float a = head[i], b = head[i + dim / 2];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + dim / 2] = b * cosine[i] + a * sine[i];
    }
}

static void store_kv(const Model& m, const Layer& layer, int64_t slot, const float* key, const float* value) {
    const int64_t block = slot / BLOCK, token = slot % BLOCK;
    for (int64_t h = 0; h < m.kv_heads; h++) {
        bf16* k = layer.keys + ((block * m.kv_heads + h) * (m.head_dim / 2)) * BLOCK * 2;
        bf16* v = layer.values + ((block * m.kv_heads + h) * BLOCK + token) * m.head_dim;
        for (int64_t i = 0; i < m.head_dim; i++) {
            k[(i / 2) * BLOCK * 2 + token * 2 + i % 2] = to_bf16(key[h * m.head_dim + i]);
            v[i] = to_bf16(value[h * m.head_dim + i]);
        }
    }
}

static void prefetch_slot(const Model& m, const Layer& layer, int64_t slot) {
    const int64_t block = slot / BLOCK, token = slot % BLOCK, dim = m.head_dim;
    for (int64_t h = 0; h < m.kv_heads; h++) {
        const bf16* k = layer.keys + (block * m.kv_heads + h) * dim * BLOCK;
        const bf16* v = layer.values + ((block * m.kv_heads + h) * BLOCK + token) * dim;
        for (int64_t i = 0; i < dim / 2; i++) __builtin_prefetch(k + i * BLOCK * 2, 1, 2);
        for (int64_t i = 0; i < dim; i += 32) __builtin_prefetch(v + i, 1, 2);
    }
}

// Blocks lie anywhere in the pool: the hardware does not see the next one coming.
static inline void prefetch(const bf16* from, int64_t count) {
    for (int64_t i = 0; i < count; i += 32) __builtin_prefetch(from + i, 0, 2);
}

// Scores of HEADS query heads over one block of keys; two sums a head (even and odd pairs) hide the latency.
template <int HEADS>
static inline void score_block(const bf16* k, int64_t num_pairs, const uint32_t* query, float* scores, int64_t stride) {
    v16 even[HEADS], odd[HEADS];
    for (int g = 0; g < HEADS; g++) even[g] = odd[g] = v16{};
    for (int64_t i = 0; i < num_pairs; i += 2)
        for (int g = 0; g < HEADS; g++) {
            even[g] = dot_pairs(even[g], k + i * BLOCK * 2, query[g * num_pairs + i]);
            odd[g] = dot_pairs(odd[g], k + (i + 1) * BLOCK * 2, query[g * num_pairs + i + 1]);
        }
    for (int g = 0; g < HEADS; g++) store(scores + g * stride, even[g] + odd[g]);
}

// In place over count scores (a multiple of 16). Summed in ascending order, masked scores as exact zeros.
static inline void softmax(float* s, int64_t count) {
    v16 most = load(s);
    for (int64_t j = LANES; j < count; j += LANES) {
        v16 v = load(s + j);
        most = v > most ? v : most;
    }
    float largest = -INFINITY;
    for (int i = 0; i < LANES; i++) largest = std::fmax(largest, most[i]);
    v16 total{};
    for (int64_t j = 0; j < count; j += LANES) {
        v16 x = load(s + j);
        v16 e = exp_nonpositive(x - largest);
        e = x == -INFINITY ? v16{} : e;
        store(s + j, e);
        total += e;
    }
    const float inverse = 1.0f / sum(total);
    for (int64_t j = 0; j < count; j += LANES) store(s + j, load(s + j) * inverse);
}

// A tile's rows, one key/value head, its G query heads. Each row does exactly what it would do alone; rows only
// share the loads of a block.
static void attend(const Model& m, const Layer& layer, const Step& step, const Tile& tile, int64_t kv_head,
                   const float* queries, int64_t query_stride, bf16* out, int64_t out_stride, std::vector<float>& scratch) {
    const int64_t group = m.heads / m.kv_heads, dim = m.head_dim, rows = tile.num_rows;
    const int64_t* table = step.tables + step.row_table[tile.first_row] * step.table_width;
    const int64_t* positions = step.positions + tile.first_row;
    auto first_key = [&](int64_t r) {
        return layer.window && positions[r] >= layer.window ? positions[r] - layer.window + 1 : 0;
    };
    const int64_t first_block = first_key(0) / BLOCK, blocks = positions[rows - 1] / BLOCK - first_block + 1;
    const int64_t keys = blocks * BLOCK;
    scratch.resize(rows * group * (keys + dim + dim / 2) + 64);
    float* scores = scratch.data();                  // [rows][G][keys]
    float* sums = scores + rows * group * keys;      // [rows][G][D]
    uint32_t* pairs = (uint32_t*)(sums + rows * group * dim);  // [rows][G][D / 2]
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < group * dim; i++)
            ((bf16*)pairs)[r * group * dim + i] = to_bf16(queries[r * query_stride + i] * m.scale);
    // A row's own blocks, counted from the tile's first.
    auto begin_block = [&](int64_t r) { return first_key(r) / BLOCK - first_block; };
    auto end_block = [&](int64_t r) { return positions[r] / BLOCK - first_block + 1; };
    constexpr int64_t AHEAD = 4;  // blocks whose keys are on their way from memory
    for (int64_t b = 0; b < std::min(AHEAD, blocks); b++)
        prefetch(layer.keys + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
    for (int64_t b = 0; b < blocks; b++) {
        const bf16* k = layer.keys + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK;
        if (b + AHEAD < blocks)
            prefetch(layer.keys + (table[first_block + b + AHEAD] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
        prefetch(layer.values + (table[first_block + b] * m.kv_heads + kv_head) * dim * BLOCK, dim * BLOCK);
        for (int64_t r = 0; r < rows; r++) {
            if (b < begin_block(r) || b >= end_block(r)) continue;
            const uint32_t* query = pairs + r * group * dim / 2;
            float* to = scores + r * group * keys + b * BLOCK;
            int64_t g = 0;
            for (; g + 4 <= group; g += 4) score_block<4>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
            if (group - g == 3) score_block<3>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
            if (group - g == 2) score_block<2>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
            if (group - g == 1) score_block<1>(k, dim / 2, query + g * dim / 2, to + g * keys, keys);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t begin = begin_block(r) * BLOCK, end = end_block(r) * BLOCK;
        const int64_t first = first_key(r) - first_block * BLOCK, last = positions[r] - first_block * BLOCK;
        for (int64_t g = 0; g < group; g++) {
            float* s = scores + (r * group + g) * keys;
            for (int64_t j = begin; j < first; j++) s[j] = -INFINITY;
            for (int64_t j = last + 1; j < end; j++) s[j] = -INFINITY;
            softmax(s + begin, end - begin);
        }
    }
    for (int64_t i = 0; i < rows * group * dim; i++) sums[i] = 0;
    for (int64_t b = 0; b < blocks; b++) {
        const bf16* v = layer.values + (table[first_block + b] * m.kv_heads + kv_head) * BLOCK * dim;
        for (int64_t d = 0; d < dim; d += LANES) {
            v16 values[BLOCK];
            for (int t = 0; t < BLOCK; t++) values[t] = load_bf16(v + t * dim + d);
            for (int64_t r = 0; r < rows; r++) {
                if (b < begin_block(r) || b >= end_block(r)) continue;
                for (int64_t g = 0; g < group; g++) {
                    const float* s = scores + (r * group + g) * keys + b * BLOCK;
                    v16 acc = load(sums + (r * group + g) * dim + d);
                    for (int t = 0; t < BLOCK; t++) acc += values[t] * s[t];
                    store(sums + (r * group + g) * dim + d, acc);
                }
            }
        }
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < group * dim; i += LANES)
            store_bf16(out + r * out_stride + i, load(sums + r * group * dim + i));
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
    for (const Layer& layer : e.layers) {
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
    linear(e.team, m.head, hidden, m.vocab, input, step.num_logit_rows,
           [&](int64_t r, int64_t group_index, v16 a, v16 b) {
               store(step.logits + r * m.vocab + group_index * GROUP * LANES, a);
               store(step.logits + r * m.vocab + group_index * GROUP * LANES + LANES, b);
           });
}

extern "C" {

int pilotfish_kernels_version() { return 1; }

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
