// A fixed team of threads that spins briefly between phases, then sleeps.
//
// The machine's cores also carry the tokens away, so a helper is taken off its core now and then, for hundreds of
// microseconds in a step of ten milliseconds. A phase does not wait for it: who has taken no item is not missed at its
// end, and where an item is computed first and committed then, the caller does again what a helper has not committed.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

// Longer than the serial work between two phases (microseconds), far shorter than the time between two steps:
// a spinning thread would take the core from the processes that carry the tokens away.
constexpr int SPINS = 3000;
// A helper that takes this many times as long as the caller has been taken off its core, or will be done soon.
constexpr int PATIENCE = 2;
constexpr int FINISHED_BITS = 24;  // for the items of a phase

class Team {
  public:
    // before_sleep: what a helper does then.
    explicit Team(int size, void (*before_sleep)() = [] {})
        : size_(size), before_sleep_(before_sleep), helpers_(new Helper[size]), shares_(new Share[size]) {
        for (int i = 1; i < size; i++) threads_.emplace_back([this, i] { work(i); });
    }
    ~Team() {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        for (auto& thread : threads_) thread.join();
    }
    int size() const { return size_; }

    // Runs body(item) for items 0..count-1. A thread has a share of them that lie together, in order, and then helps others.
    template <class Body>
    void run(int count, const Body& body) {
        if (size_ == 1 || count == 1) {
            for (int i = 0; i < count; i++) body(i);
            return;
        }
        publish(count, &body, [](const void* b, int item, Helper&) {
            (*(const Body*)b)(item);
            return true;
        });
        int num_own = 0;
        for (int item; (item = claim(0)) >= 0; num_own++) body(item);
        for (int spin = 0; !is_finished(num_own); spin++) relax(spin);
    }

    // Runs commit(item, compute(item)) for items 0..count-1. compute writes only to memory of the thread that runs it.
    // It is copied, and may still run, for nothing, when the phase is over: see settle.
    template <class Compute, class Commit>
    void run(int count, const Compute& compute, const Commit& commit) {
        if (size_ == 1 || count == 1) {
            for (int i = 0; i < count; i++) commit(i, compute(i));
            return;
        }
        const Job<Compute, Commit> job{compute, commit};
        const auto start = Clock::now();
        publish(count, &job, [](const void* j, int item, Helper& helper) {
            const auto& job = *(const Job<Compute, Commit>*)j;
            const Compute compute = job.compute;
            helper.item = item;
            helper.state.store(COMPUTING);
            const auto result = compute(item);
            State expected = COMPUTING;
            const bool is_ours = helper.state.compare_exchange_strong(expected, COMMITTING);
            if (is_ours) job.commit(item, result);
            helper.state.store(AWAY);
            return is_ours;
        });
        int num_own = 0;
        for (int item; (item = claim(0)) >= 0; num_own++) commit(item, compute(item));
        if (is_finished(num_own)) return;
        const auto end = Clock::now();
        const auto deadline = end + PATIENCE * (end - start) / (num_own ? num_own : 1);
        for (int spin = 0; !is_finished(num_own); spin++) {
            relax(spin);
            if (num_own && Clock::now() >= deadline) num_own += take_over(compute, commit);
        }
    }

    // Waits for helpers whose item was done by the caller: then nobody reads what compute has captured any more.
    void settle() {
        for (int i = 1; i < size_; i++)
            for (int spin = 0; helpers_[i].state.load(std::memory_order_acquire) == OVERTAKEN; spin++) relax(spin);
    }

  private:
    typedef std::chrono::steady_clock Clock;
    // AWAY: has no item, or none that could be taken over.
    enum State : int { AWAY, COMPUTING, COMMITTING, OVERTAKEN };
    struct alignas(64) Helper {
        std::atomic<State> state{AWAY};
        int item = 0;
        std::atomic<uint64_t> finished{0};  // the phase, and how many of its items: FINISHED_BITS

        void count(uint64_t phase) {
            const uint64_t before = finished.load(std::memory_order_relaxed);
            const uint64_t none = phase << FINISHED_BITS;
            finished.store(std::max(before, none) + 1, std::memory_order_release);
        }
    };
    // Items of a phase that one thread takes before others do: their end << 32, and the next one. A line of its own: had all
    // one number, each item would wait until that has come from another core, which takes as long as some items.
    struct alignas(64) Share {
        std::atomic<uint64_t> tickets{0};

        bool has_items() const {
            const uint64_t ticket = tickets.load();
            return (uint32_t)ticket < ticket >> 32;
        }
        // The next item; -1: none is left.
        int claim() {
            if (!has_items()) return -1;  // leaves the line where it is
            const uint64_t ticket = tickets.fetch_add(1);
            return (uint32_t)ticket < ticket >> 32 ? (uint32_t)ticket : -1;
        }
    };
    template <class Compute, class Commit>
    struct Job {
        const Compute& compute;
        const Commit& commit;
    };
    // Whether the item was finished by this call.
    typedef bool (*Call)(const void* body, int item, Helper& helper);

    void publish(int count, const void* body, Call call) {
        call_ = call;
        body_ = body;
        count_ = count;
        phase_.fetch_add(1);
        for (int64_t i = 0; i < size_; i++)
            shares_[i].tickets.store((uint64_t)(count * (i + 1) / size_) << 32 | count * i / size_, std::memory_order_release);
        if (!sleepers_.load()) return;
        { std::lock_guard<std::mutex> hold(mutex_); }
        wake_.notify_all();
    }

    // The next item for a thread; -1: none is left. Who has one keeps the phase from ending, so it may read what publish
    // wrote.
    int claim(int thread) {
        for (int i = 0; i < size_; i++)
            if (const int item = shares_[(thread + i) % size_].claim(); item >= 0) return item;
        return -1;
    }

    // Whether the helpers have finished what the caller, with num_own items of its own, has not.
    bool is_finished(int num_own) const {
        const uint64_t phase = phase_.load(std::memory_order_relaxed);
        int count = num_own;
        for (int i = 1; i < size_; i++) {
            const uint64_t finished = helpers_[i].finished.load(std::memory_order_acquire);
            if (finished >> FINISHED_BITS == phase) count += finished & ((1 << FINISHED_BITS) - 1);
        }
        return count == count_;
    }

    // Does what helpers are computing; returns how many items. All items are handed out, so each has its last.
    template <class Compute, class Commit>
    int take_over(const Compute& compute, const Commit& commit) {
        int num_taken = 0;
        for (int i = 1; i < size_; i++) {
            Helper& helper = helpers_[i];
            if (helper.state.load() != COMPUTING) continue;
            const int item = helper.item;
            const auto result = compute(item);
            State expected = COMPUTING;
            if (!helper.state.compare_exchange_strong(expected, OVERTAKEN)) continue;
            commit(item, result);
            num_taken++;
        }
        return num_taken;
    }

    static void relax(int spin) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (spin > SPINS) std::this_thread::yield();
    }

    void work(int thread) {
        Helper& helper = helpers_[thread];
        while (!stop_) {
            const uint64_t seen = phase_.load();
            for (int spin = 0; spin < SPINS && !shares_[thread].has_items(); spin++) relax(0);
            for (int item; (item = claim(thread)) >= 0;)
                if (call_(body_, item, helper)) helper.count(phase_.load(std::memory_order_relaxed));
            if (phase_.load() == seen) sleep(seen);
        }
    }
    // Until a phase has begun, though it may be over by now: the next one follows within the time of a spin.
    void sleep(uint64_t seen) {
        before_sleep_();
        std::unique_lock<std::mutex> hold(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(hold, [&] { return stop_ || phase_.load() != seen; });
        sleepers_.fetch_sub(1);
    }

    const int size_;
    void (*const before_sleep_)();
    const std::unique_ptr<Helper[]> helpers_;
    const std::unique_ptr<Share[]> shares_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    alignas(64) std::atomic<uint64_t> phase_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    int count_ = 0;
    Call call_ = nullptr;
    const void* body_ = nullptr;
};
