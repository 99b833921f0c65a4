// A helper that is taken off its core in the middle of an item, and what becomes of the phases meanwhile. Prints a line
// for each phase: by whom each item was committed (c: the caller, h: the helper), and "settled" where settle has waited.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "team.h"

constexpr int ITEMS = 16;
constexpr auto PATIENCE_WITH_CALLER = std::chrono::seconds(10);
static const std::thread::id CALLER = std::this_thread::get_id();
static std::atomic<bool> is_away{false}, is_back{false}, has_left{false};
static std::string committers[ITEMS];

static bool is_caller() { return std::this_thread::get_id() == CALLER; }

// A caller that does not do the work again waits for the helper: then the helper comes back by itself, and commits.
template <class Condition>
static void wait_for(const Condition& is_so) {
    const auto end = std::chrono::steady_clock::now() + PATIENCE_WITH_CALLER;
    while (!is_so() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

static const auto commit = [](int item) { committers[item] += is_caller() ? "c" : "h"; };

static void print_phase(const char* name) {
    printf("%s:", name);
    for (std::string& committer : committers) {
        printf(" %s", committer.c_str());
        committer.clear();
    }
    printf("\n");
}

// The helper takes an item and stays there; the caller does the others meanwhile.
static void send_away(Team& team) {
    is_away = is_back = has_left = false;
    const auto compute = [](int) {
        if (is_caller()) return wait_for([] { return is_away.load(); }), 0;
        is_away = true;
        wait_for([] { return is_back.load(); });
        for (int turn = 0; turn < 1000; turn++) std::this_thread::yield();
        has_left = true;
        return 0;
    };
    team.run(ITEMS, compute, [](int item, int) { commit(item); });
    print_phase("overtaken");
}

int main() {
    Team team(2);
    send_away(team);
    team.run(ITEMS, [](int) { return 0; }, [](int item, int) { commit(item); });
    print_phase("without it");
    team.run(ITEMS, commit);
    print_phase("without it, in one part");
    is_back = true;
    team.settle();
    if (has_left) printf("settled\n");

    send_away(team);
    std::atomic<int> num_helped{0};
    const auto compute = [&](int) {
        is_back = true;
        if (is_caller()) wait_for([&] { return num_helped > 0; });
        return 0;
    };
    team.run(ITEMS, compute, [&](int item, int) {
        commit(item);
        if (!is_caller()) num_helped++;
    });
    print_phase("it comes back");
}
