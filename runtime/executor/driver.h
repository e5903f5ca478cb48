/* The state behind the cu* entry points: one device, its contexts, modules and streams. */
#ifndef EXECUTOR_DRIVER_H
#define EXECUTOR_DRIVER_H

#include <pthread.h>

#include "config.h"
#include "cuda_types.h"
#include "launch.h"
#include "memory.h"
#include "report.h"

struct CUctx_st {
    struct CUctx_st *next;
    bool primary, destroyed;
    unsigned flags;
    int references;
    int error; /* sticky: what every later call in this context returns */
};

struct CUfunc_st {
    struct CUfunc_st *next;
    const struct function *function;
    struct CUmod_st *module;
    int max_dynamic_shared, carveout;
    uint64_t launches; /* with the totals below: for the counters */
};

struct CUmod_st {
    struct CUmod_st *next;
    struct module *module;
    struct CUfunc_st *functions;
    bool library;
};

struct work;

struct CUstream_st {
    struct CUstream_st *next;
    unsigned flags;
    int priority;
    uint64_t id;
    struct CUgraph_st *capture;          /* being recorded, or null */
    bool capture_broken, capture_joined; /* joined: drawn in by an event of another stream */
    int capture_mode;
    uint64_t capture_id;
};

struct CUevent_st {
    struct CUevent_st *next;
    unsigned flags;
    bool recorded;
    struct CUgraph_st *capture; /* recorded in a stream being captured */
    double milliseconds;        /* of the host's clock */
};

struct driver {
    pthread_mutex_t lock; /* held by every entry point that touches what follows */
    bool initialised, failed;
    bool finished; /* the process or the library is going: every call says so */
    char why[200];
    struct config config;
    struct memory memory;
    struct reporter reporter;
    struct CUctx_st primary;
    struct CUctx_st *contexts;
    struct CUmod_st *modules;
    struct CUstream_st *streams;
    struct CUevent_st *events;
    uint64_t launches, blocks, warp_instructions, lane_instructions;
    uint32_t module_ids;
    uint64_t stream_ids, capture_ids;
    uint64_t stack_limit, heap_limit, fifo_limit;
};

extern struct driver driver;

/*
 * Every entry point begins with one of these: the call is counted for fault injection, the lock is
 * taken, and a missing cuInit, context or a sticky error ends it. DONE gives the lock back.
 */
int driver_enter(const char *name);
int driver_enter_context(const char *name);
int driver_leave(int result);
#define ENTER(name)                                                                                \
    do {                                                                                           \
        int entered_ = driver_enter(name);                                                         \
        if (entered_) return driver_leave(entered_);                                               \
    } while (0)
#define ENTER_CONTEXT(name)                                                                        \
    do {                                                                                           \
        int entered_ = driver_enter_context(name);                                                 \
        if (entered_) return driver_leave(entered_);                                               \
    } while (0)
#define DONE(result) return driver_leave(result)

/* Make the error sticky in the current context, if it is of that kind; returns it. */
int driver_fault(int result);
struct CUctx_st *driver_current(void);

/* ---- work that a stream carries ---- */

enum work_kind { WORK_NONE, WORK_KERNEL, WORK_COPY, WORK_SET, WORK_HOST, WORK_FREE, WORK_EVENT };

struct work {
    enum work_kind kind;
    struct CUfunc_st *function;
    unsigned grid[3], block[3], shared;
    void *params; /* a copy, owned by the work */
    size_t param_bytes;
    CUdeviceptr to, from;
    const void *host_from;
    void *host_to;
    size_t bytes, pitch_to, pitch_from, rows;
    uint32_t value, value_bytes;
    void (*callback)(void *);
    void *user;
    struct CUevent_st *event;
};

/* Do it now, or record it when the stream is being captured. Takes over work->params. */
int stream_submit(CUstream stream, struct work *work);
/* Do it now. Does not free work->params. */
int work_run(const struct work *work);
bool stream_valid(CUstream stream);
struct CUstream_st *stream_of(CUstream stream); /* null: the legacy stream */

int copy_run(const struct work *work);
int set_run(const struct work *work);
int kernel_run(const struct work *work);
int module_load(const void *image, const int *options, void **values, unsigned count, bool library,
                struct CUmod_st **out);
int module_load_file(const char *path, const int *options, void **values, unsigned count,
                     bool library, struct CUmod_st **out);
bool module_valid(const struct CUmod_st *module);
/* Its functions into `list`, at most `room`; returns how many there are. */
unsigned module_functions(const struct CUmod_st *module, struct CUfunc_st **list, unsigned room);
int module_global(struct CUmod_st *module, const char *name, CUdeviceptr *address, size_t *bytes);
int module_unload(struct CUmod_st *module);
struct CUfunc_st *function_find(struct CUmod_st *module, const char *name);
bool function_valid(const struct CUfunc_st *function);
uint64_t shared_limit(void); /* of a block without opting in */
uint64_t shared_limit_opt_in(void);
void capture_drop(struct CUstream_st *stream);
/* Free what is left when the library goes. */
void modules_free(void);
void streams_free(void);
void graphs_free(void);
bool capture_active(void); /* some stream is being captured: unsafe calls fail */

#endif
