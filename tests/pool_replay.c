/*
 * The scheduler of examples/replay.c on a real trace and on generated loads: `elastic` reaches what
 * simulation found its rules to give, and does not lose to the best of several fixed splits.
 */
#include "../bench/pool_replay.h"

#include "tap.h"

static const struct run_options closed = {
    .step_tokens = 8192, .max_running = 256, .step_seconds = 0.025, .token_seconds = 12e-6};

static struct run_result replay(const struct load *load, kvf_policy policy, double memory,
                                double windows, bool lean, bool arrival) {
    struct run_result result = {0};
    kvf_error error;
    kvf_pool *pool = replay_pool(policy, memory, windows, 256, lean, &error);
    if (!pool) {
        result.rejected = load->count;
        return result;
    }
    struct run_options options = closed;
    options.by_arrival = arrival;
    run_load(pool, load, &options, &result);
    if (kvf_pool_check(pool, &error)) {
        tap_note("%s", error.text);
        result.rejected = load->count;
    }
    kvf_pool_destroy(pool);
    return result;
}

static double hit_rate(const struct run_result *r) {
    return r->prompt_tokens ? (double)r->cached_tokens / (double)r->prompt_tokens : 0;
}

/* ---- the trace, against the figures of the simulation (within 3 %) ---- */

static const struct {
    double memory, hit, wait;
    bool arrival;
} figures[] = {
    {16, .107, 81, false}, {32, .225, 31, false}, {80, .310, 26, false},
    {12, .105, 8.3, true}, {20, .178, 7.5, true}, {40, .251, 6.6, true},
};
enum { FIGURES = sizeof figures / sizeof figures[0] };

static void trace(void) {
    struct load load = {0};
    if (load_trace(&load, "../shared/traces/conversation_4000.jsonl")) {
        tap_skip(FIGURES + 1, "no trace here");
        return;
    }
    for (int i = 0; i < FIGURES; i++) {
        struct run_result r =
            replay(&load, KVF_POLICY_ELASTIC, figures[i].memory, 0, true, figures[i].arrival);
        ok(r.finished == 4000 && hit_rate(&r) >= figures[i].hit * 0.97 &&
               r.mean_wait <= figures[i].wait * 1.03,
           "trace, %.0f GB%s: hit %.3f (%.3f), wait %.1f (%.1f)", figures[i].memory,
           figures[i].arrival ? ", by arrival" : "", hit_rate(&r), figures[i].hit, r.mean_wait,
           figures[i].wait);
    }
    struct run_result r = replay(&load, KVF_POLICY_ELASTIC, 32, 0, false, false);
    ok(r.finished == 4000 && hit_rate(&r) > .21 && r.mean_wait < 36,
       "with snapshots and the whole state, 32 GB: hit %.3f, wait %.1f", hit_rate(&r), r.mean_wait);
    load_free(&load);
}

/* ---- generated loads, against fixed splits at the same bytes ---- */

static void against_static(const char *name, double memory) {
    static const double shares[] = {.06, .12, .20, .35, .50, .65};
    struct load load;
    if (load_named(&load, name, 1, 5)) exit(1);
    struct run_result e = replay(&load, KVF_POLICY_ELASTIC, memory, 0, true, false);
    double hit = 0, wait = 1e9;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        struct run_result s = replay(&load, KVF_POLICY_STATIC, memory, shares[i], true, false);
        if (s.rejected) continue;
        if (hit_rate(&s) > hit) hit = hit_rate(&s);
        if (s.mean_wait < wait) wait = s.mean_wait;
    }
    ok(e.finished == load.count && hit_rate(&e) >= 0.95 * hit && e.mean_wait <= wait,
       "%s, %.1f GB: hit %.3f (best split %.3f), wait %.1f (best split %.1f)", name, memory,
       hit_rate(&e), hit, e.mean_wait, wait);
    load_free(&load);
}

static void all_policies(void) {
    struct load load;
    if (load_named(&load, "agents", 1, 5)) exit(1);
    for (int policy = 0; policy < 3; policy++) {
        struct run_result r = replay(&load, (kvf_policy)policy, 4.5, 0, false, false);
        ok(r.finished == load.count && hit_rate(&r) > 0.02,
           "policy %d serves every agent's turn: hit %.3f, wait %.1f, %d preempted", policy,
           hit_rate(&r), r.mean_wait, (int)r.preemptions);
    }
    load_free(&load);
    if (load_named(&load, "million", 1, 1)) exit(1);
    struct run_result r = replay(&load, KVF_POLICY_ELASTIC, 6, 0, false, false);
    ok(r.finished == 1 && r.peak_live_tokens > 1048000, "a request of a million tokens in 6 GB");
    load_free(&load);
}

int main(void) {
    tap_plan(FIGURES + 1 + 9 + 4);
    trace();
    against_static("short", 2.4);
    against_static("short", 3.3);
    against_static("mixed", 4);
    against_static("mixed", 6);
    against_static("prefix", 3.3);
    against_static("prefix", 3.8);
    against_static("agents", 3);
    against_static("zipf", 5);
    against_static("phases", 4);
    all_policies();
    return tap_done();
}
