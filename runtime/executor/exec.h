/*
 * What runs: a launch's blocks, their warps, and the registers of each call frame. The functions
 * that execute operations (op_*.c) see these structures and the inline helpers below.
 *
 * A warp's lanes are kept in groups, each with its own program counter and frame. One group runs at
 * a time, its state in the warp itself; it runs until its counter reaches `limit`: where another
 * group waits, or 0 when the operation asked to stop. Picking the group with the lowest counter in
 * the deepest frame brings lanes together again behind branches and loops.
 */
#ifndef EXECUTOR_EXEC_H
#define EXECUTOR_EXEC_H

#include <string.h>

#include "forms.h"
#include "memory.h"
#include "ptx.h"

enum { SHARED_START = 1024, BARRIERS = 16, WARPS_MAX = 32, FULL_MASK_IS_ALL = 1 };
#define ALL_LANES UINT32_MAX

struct frame {
    struct frame *caller;
    const struct function *function;
    const struct op *call; /* that made it; null for the kernel's own */
    uint32_t return_pc;
    uint32_t depth;
    uint32_t lanes; /* that have not returned from it */
    uint32_t *registers, *defined, *predicates, *predicates_defined;
    uint32_t
        *origins; /* per slot: 1 + operation where an undefined value came from; 0: never written */
    uint32_t *predicate_origins;
    uint32_t *halves; /* per slot, 4: lanes in which that half is defined; see undefined.c */
    bool halves_used; /* else they are all 0 */
    uint8_t *params;  /* per lane, frame_param_bytes each: arguments, results, call variables */
    uint8_t *params_defined; /* one byte a byte */
    uint64_t local_base;     /* of its .local variables in each lane's local memory */
};

enum group_state { GROUP_READY, GROUP_WARP_SYNC, GROUP_BARRIER };

struct group {
    uint32_t pc, lanes;
    struct frame *frame;
    enum group_state state;
    uint32_t need;    /* WARP_SYNC: the lanes that must come together */
    uint32_t barrier; /* BARRIER: its number */
    uint32_t count;   /* BARRIER: threads expected, 0 for all */
    uint64_t ticked;  /* when it last ran, for fairness */
};

struct block;
struct worker;
struct async_state;

struct warp {
    /* the running group */
    uint32_t pc, limit, mask;
    const struct op *code;
    uint32_t *bank[2]; /* registers of the frame; constants of the module */
    uint32_t *defined, *predicates, *predicates_defined;
    struct frame *frame;

    struct frame *kernel; /* the outermost frame */
    uint32_t alive;       /* lanes that have not exited */
    uint32_t started;     /* lanes that exist */
    uint32_t carry;       /* the condition code's carry bit, by lane */
    uint32_t index;       /* in the block */
    struct block *block;
    struct worker *worker;
    struct group groups[LANES];
    uint32_t group_count;
    uint64_t ticks;           /* operations executed */
    uint32_t spin;            /* picks without another group moving */
    uint32_t waiting_barrier; /* 1 + its number when the whole warp waits */
    uint64_t fuel;            /* operations left in this turn */
    struct region local;      /* local memory of all lanes, `local_stride` bytes each */
    uint64_t local_stride;
    struct async_state *async;
    uint32_t epoch; /* advances at each warp-level synchronisation */
};

struct barrier {
    uint32_t warps_waiting, threads_arrived, expected;
    uint32_t lanes_true; /* bar.red: predicates counted so far */
    uint32_t voters;
};

struct block {
    struct launch *launch;
    struct worker *worker;
    uint32_t id[3];
    uint64_t linear;
    uint32_t warp_count, live_warps;
    struct warp *warps;
    struct region shared;
    struct barrier barriers[BARRIERS];
    uint32_t epoch; /* advances at each barrier of the whole block */
    uint64_t steps;
    uint8_t *pending; /* by 4 bytes of shared memory: asynchronous copies under way into it */
    uint64_t pending_count;
    struct race_shared *races;
    bool fenced;       /* a fence of device scope was executed */
    bool acquires;     /* its last access was one that may acquire */
    uint32_t acquired; /* the launch's clock when it last acquired */
    bool started;
};

struct finding;
struct reporter;
struct counters;

struct launch {
    const struct module *module;
    const struct function *function;
    struct memory *memory;
    const struct config *config;
    struct reporter *reporter;
    uint32_t grid[3], dimensions[3];
    uint64_t dynamic_shared, shared_bytes;
    uint8_t *params; /* the packed block, param_bytes */
    uint64_t blocks;
    uint64_t number; /* of the launch in the process */
    _Atomic uint64_t next_block;
    _Atomic int stop;         /* a fault: no further operation need run */
    _Atomic int result;       /* a CUresult, 0 while all is well */
    struct race_clock *clock; /* synchronisation between blocks */
};

struct worker {
    _Alignas(64) struct launch *launch; /* no two workers share a cache line */
    struct region *cache[64];           /* last region found, by operation */
    uint64_t random;
    struct arena arena;
    struct frame *free_frames;
    struct block *idle; /* done, ready to be another block */
    uint64_t warp_instructions, lane_instructions, blocks;
    uint64_t class_warps[CLASS_COUNT], class_lanes[CLASS_COUNT];
    struct counters *counters;
};

typedef float __attribute__((may_alias)) f32_alias;
typedef double __attribute__((may_alias)) f64_alias;
typedef uint64_t __attribute__((may_alias)) u64_alias;
typedef uint32_t __attribute__((may_alias)) u32_alias;

/* The suffix of a function that executes a form, in this compilation. */
#ifndef EXEC_ISA
#define EXEC_ISA base
#endif
#define EXEC_PASTE2(name, isa) op_##name##_##isa
#define EXEC_PASTE(name, isa)  EXEC_PASTE2(name, isa)
#define OP(name)               EXEC_PASTE(name, EXEC_ISA)
#define OP_FUNCTION(name)      void OP(name)(struct warp * w, const struct op *o, uint32_t m)
#define EACH_LANE              for (int i = 0; i < LANES; i++)
#define EACH_SET_LANE(i, mask)                                                                     \
    for (uint32_t rest_##i = (mask), i = 0;                                                        \
         rest_##i && (i = (uint32_t)__builtin_ctz(rest_##i), 1); rest_##i &= rest_##i - 1)

#define FORM(name, pattern, signature, class, target, version)                                     \
    op_function op_##name##_base, op_##name##_avx2, op_##name##_avx512;
#include "forms.def"
#undef FORM

/* ---- operands ---- */

static inline const uint32_t *source32(const struct warp *w, int32_t slot) {
    return w->bank[slot < 0] + (size_t)(slot ^ (slot >> 31)) * LANES;
}

static inline const u64_alias *source64(const struct warp *w, int32_t slot) {
    return (const u64_alias *)source32(w, slot);
}

static inline uint32_t defined_of(const struct warp *w, int32_t slot) {
    return w->defined[slot < 0 ? 0 : slot];
}

static inline uint32_t predicate_of(const struct warp *w, const struct op *o) {
    return w->predicates[o->p] ^ (0u - (uint32_t)o->p_not);
}

static inline void put32(struct warp *w, int32_t slot, const uint32_t *value, uint32_t m) {
    uint32_t *d = w->bank[0] + (size_t)slot * LANES;
    if (m == ALL_LANES) {
        memcpy(d, value, SLOT_BYTES);
    } else {
        EACH_LANE d[i] = (m >> i & 1) ? value[i] : d[i];
    }
}

static inline void put64(struct warp *w, int32_t slot, const uint64_t *value, uint32_t m) {
    u64_alias *d = (u64_alias *)(w->bank[0] + (size_t)slot * LANES);
    if (m == ALL_LANES) {
        memcpy(d, value, (size_t)2 * SLOT_BYTES);
    } else {
        EACH_LANE d[i] = (m >> i & 1) ? value[i] : d[i];
    }
}

/*
 * Some of `lanes` of the destination are not defined (undefined.c): remember where that came from,
 * and which of its 16-bit halves are defined all the same. `old`: its definedness before.
 */
void undefined_flow(struct warp *w, const struct op *o, int32_t slot, uint32_t lanes, uint32_t old);
/* Lanes in which bits 16k..16k+15 of a register are defined. */
uint32_t undefined_half(const struct warp *w, int32_t slot, unsigned k);
/* Say so, in lanes where the whole of it is not. */
void undefined_set_halves(struct warp *w, int32_t slot, uint32_t lanes, const uint32_t known[4]);

/* Destination `slot` is as defined as `sources` says, in the lanes of m. */
static inline void define(struct warp *w, const struct op *o, int32_t slot, uint32_t m,
                          uint32_t sources) {
    uint32_t old = w->defined[slot];
    w->defined[slot] = (old & ~m) | (m & sources);
    if (__builtin_expect((m & ~sources) != 0, 0)) undefined_flow(w, o, slot, m & ~sources, old);
}

/* The same for a predicate, set by the operation that runs. */
void undefined_predicate(struct warp *w, int32_t index);

static inline void put_predicate(struct warp *w, int32_t index, uint32_t m, uint32_t value,
                                 uint32_t sources) {
    w->predicates[index] = (w->predicates[index] & ~m) | (m & value);
    w->predicates_defined[index] = (w->predicates_defined[index] & ~m) | (m & sources);
    if (__builtin_expect((m & ~sources) != 0, 0)) undefined_predicate(w, index);
}

/* Bytes that are 0 or 1 as a mask of lanes. */
static inline uint32_t mask_of8(const uint8_t *bytes) {
    uint32_t mask = 0;
    for (int k = 0; k < 4; k++) {
        uint64_t eight;
        memcpy(&eight, bytes + (ptrdiff_t)8 * k, 8);
        mask |= (uint32_t)(eight * 0x0102040810204080u >> 56) << (8 * k);
    }
    return mask;
}

/* ---- groups of lanes (schedule.c) ---- */

/* The running group stops after this operation; the scheduler looks at all groups again. */
static inline void warp_yield(struct warp *w) {
    w->limit = 0;
}

/* Lanes of `lanes` go on at `pc` in the running frame; the rest of the running group stays. */
void warp_branch(struct warp *w, uint32_t lanes, uint32_t pc);
/* Lanes of `lanes` wait at this operation. */
void warp_park(struct warp *w, uint32_t lanes, enum group_state state, uint32_t need,
               uint32_t barrier, uint32_t count);
void warp_exit(struct warp *w, uint32_t lanes);
void warp_call(struct warp *w, const struct op *o, uint32_t lanes, const struct function *callee);
void warp_return(struct warp *w, uint32_t lanes);
/*
 * At a .sync operation: true when every live lane of `members` is here, so that it may execute.
 * Else the lanes wait and the operation will run again.
 */
bool warp_together(struct warp *w, const struct op *o, uint32_t m, uint32_t members);
/* Of `all` that execute this operation, `lanes` do so once more, apart from the rest. */
void warp_again(struct warp *w, const struct op *o, uint32_t all, uint32_t lanes);
/* bar.arrive: the warp is counted and goes on. */
void warp_barrier_arrive(struct warp *w, const struct op *o, uint32_t id, uint32_t count);

/* counters.c: called when counters are on. */
void counter_operation(struct worker *worker, const struct warp *w, const struct op *o,
                       uint32_t lanes);

#endif
