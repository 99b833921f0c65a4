// Sixteen 32-bit numbers, in one register of AVX-512, two of AVX2, or four of 16 bytes.
//
// Why not vectors of 64 bytes everywhere: where registers are shorter, compilers keep those in memory and take them
// apart number by number, which makes a step ten times as long.
#pragma once
#include <cstdint>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define REGISTER_BYTES 64
#elif defined(__AVX2__) && defined(__F16C__)
#define REGISTER_BYTES 32
#else
#define REGISTER_BYTES 16
#endif

// What a register holds.
typedef float part __attribute__((vector_size(REGISTER_BYTES)));
typedef int32_t part_i __attribute__((vector_size(REGISTER_BYTES)));
typedef uint32_t part_u __attribute__((vector_size(REGISTER_BYTES)));
constexpr int PART_LANES = REGISTER_BYTES / 4;

template <class Vector>
struct ElementOf {
    typedef std::remove_reference_t<decltype(std::declval<Vector&>()[0])> type;
};

template <class Half>
struct Pair;
template <class Half>
static inline Pair<Half> pair(Half low, Half high);

#define PAIR_OPERATOR(op)                                                                      \
    friend Pair operator op(Pair a, Pair b) { return {a.low op b.low, a.high op b.high}; }     \
    friend Pair operator op(Pair a, Element b) { return {a.low op b, a.high op b}; }           \
    friend Pair operator op(Element a, Pair b) { return {a op b.low, a op b.high}; }
#define PAIR_COMPARISON(op)                                                                    \
    friend auto operator op(Pair a, Pair b) { return pair(a.low op b.low, a.high op b.high); } \
    friend auto operator op(Pair a, Element b) { return pair(a.low op b, a.high op b); }

// Two vectors as one: what the compiler's own vectors can do.
template <class Half>
struct Pair {
    typedef typename ElementOf<Half>::type Element;
    Half low, high;
    PAIR_OPERATOR(+)
    PAIR_OPERATOR(-)
    PAIR_OPERATOR(*)
    PAIR_OPERATOR(/)
    PAIR_OPERATOR(&)
    PAIR_OPERATOR(<<)
    PAIR_OPERATOR(>>)
    PAIR_COMPARISON(<)
    PAIR_COMPARISON(>)
    PAIR_COMPARISON(==)
    Pair operator-() const { return {-low, -high}; }
    Pair& operator+=(Pair other) { return *this = *this + other; }
    Pair& operator>>=(Element bits) { return *this = *this >> bits; }
};
#undef PAIR_OPERATOR
#undef PAIR_COMPARISON

template <class Half>
struct ElementOf<Pair<Half>> {
    typedef typename Pair<Half>::Element type;
};

template <class Half>
static inline Pair<Half> pair(Half low, Half high) {
    return {low, high};
}

#if REGISTER_BYTES == 64
typedef part v16;
typedef part_i v16i;
typedef part_u v16u;
#elif REGISTER_BYTES == 32
typedef Pair<part> v16;
typedef Pair<part_i> v16i;
typedef Pair<part_u> v16u;
#else
typedef Pair<Pair<part>> v16;
typedef Pair<Pair<part_i>> v16i;
typedef Pair<Pair<part_u>> v16u;
#endif

// A vector of sixteen from make(first number) for each of its parts.
template <class Make>
static inline auto from_parts(const Make& make) {
#if REGISTER_BYTES == 64
    return make(0);
#elif REGISTER_BYTES == 32
    return pair(make(0), make(8));
#else
    return pair(pair(make(0), make(4)), pair(make(8), make(12)));
#endif
}

// change(part) of every part.
template <class Vector, class Change>
static inline auto map(Vector v, const Change& change) {
    return change(v);
}
template <class Half, class Change>
static inline auto map(Pair<Half> v, const Change& change) {
    return pair(map(v.low, change), map(v.high, change));
}

// use(part, its first number) for every part, in order.
template <class Vector, class Use>
static inline void each_part(Vector v, const Use& use, int first = 0) {
    use(v, first);
}
template <class Half, class Use>
static inline void each_part(Pair<Half> v, const Use& use, int first = 0) {
    each_part(v.low, use, first);
    each_part(v.high, use, first + sizeof(Half) / 4);
}

// Number by number: a where the comparison holds, else b.
template <class Mask, class Vector>
static inline Vector select(Mask mask, Vector a, Vector b) {
    return mask ? a : b;
}
template <class Mask, class Half>
static inline Pair<Half> select(Pair<Mask> mask, Pair<Half> a, Pair<Half> b) {
    return {select(mask.low, a.low, b.low), select(mask.high, a.high, b.high)};
}

// The same bits, taken otherwise.
static inline v16 as_floats(v16i v) { return map(v, [](part_i x) { return (part)x; }); }
static inline v16 as_floats(v16u v) { return map(v, [](part_u x) { return (part)x; }); }
static inline v16i as_ints(v16 v) { return map(v, [](part x) { return (part_i)x; }); }
static inline v16i as_ints(v16u v) { return map(v, [](part_u x) { return (part_i)x; }); }
static inline v16u as_words(v16 v) { return map(v, [](part x) { return (part_u)x; }); }

static inline v16i truncate(v16 v) { return map(v, [](part x) { return __builtin_convertvector(x, part_i); }); }
static inline v16 to_floats(v16i v) { return map(v, [](part_i x) { return __builtin_convertvector(x, part); }); }
static inline v16 to_floats(v16u v) { return to_floats(as_ints(v)); }  // below 2^31
