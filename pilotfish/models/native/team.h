// A fixed team of threads that spins briefly between phases, then sleeps.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

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
