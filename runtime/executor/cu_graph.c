/* Stream capture into graphs, and graphs' replay: a graph is its work in the order of capture. */
#include <stdlib.h>

#include "driver.h"

struct CUgraph_st {
    struct CUgraph_st *next;
    struct work *works;
    struct CUgraphNode_st *nodes; /* handles, one a work, made when asked for */
    size_t count, capacity;
};

struct CUgraphNode_st {
    struct CUgraph_st *graph;
    size_t index;
};

struct CUgraphExec_st {
    struct CUgraphExec_st *next;
    struct CUgraph_st *graph; /* its own copy */
};

static struct CUgraph_st *graphs;
static struct CUgraphExec_st *executables;

static void free_works(struct CUgraph_st *g) {
    for (size_t i = 0; i < g->count; i++) free(g->works[i].params);
    free(g->works);
    free(g->nodes);
    free(g);
}

static bool copy_params(struct work *to, const struct work *from) {
    *to = *from;
    to->params = NULL;
    if (!from->params) return true;
    to->params = malloc(from->param_bytes + 16);
    if (!to->params) return false;
    memcpy(to->params, from->params, from->param_bytes);
    return true;
}

static int append(struct CUgraph_st *g, const struct work *work) {
    if (g->count == g->capacity) {
        size_t capacity = g->capacity ? g->capacity * 2 : 16;
        struct work *grown = realloc(g->works, capacity * sizeof *grown);
        if (!grown) return CUDA_ERROR_OUT_OF_MEMORY;
        g->works = grown;
        g->capacity = capacity;
    }
    g->works[g->count++] = *work;
    return CUDA_SUCCESS;
}

static struct CUgraph_st *graph_copy(const struct CUgraph_st *g) {
    struct CUgraph_st *copy = calloc(1, sizeof *copy);
    if (!copy) return NULL;
    for (size_t i = 0; i < g->count; i++) {
        struct work work;
        bool good = copy_params(&work, &g->works[i]);
        if (!good || append(copy, &work)) {
            if (good) free(work.params);
            free_works(copy);
            return NULL;
        }
    }
    return copy;
}

bool capture_active(void) {
    for (const struct CUstream_st *s = driver.streams; s; s = s->next)
        if (s->capture && s->capture_mode != 2) return true; /* 2: relaxed */
    return false;
}

int stream_submit(CUstream stream, struct work *work) {
    struct CUstream_st *s = stream_of(stream);
    if (s && s->capture) {
        int result =
            s->capture_broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : append(s->capture, work);
        if (result) free(work->params);
        return result;
    }
    if (!s && capture_active()) {
        free(work->params);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    int result = work_run(work);
    free(work->params);
    return result;
}

void capture_drop(struct CUstream_st *stream) {
    if (!stream->capture || stream->capture_joined) return;
    for (struct CUstream_st *s = driver.streams; s; s = s->next)
        if (s != stream && s->capture == stream->capture) s->capture = NULL;
    free_works(stream->capture);
    stream->capture = NULL;
}

/* ---- capture ---- */

CU_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CU_EXPORT CUresult cuStreamBeginCapture(CUstream stream);
CU_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CU_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status);
CU_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
                                             CUgraph *graph, const CUgraphNode **dependencies,
                                             size_t *count);
CU_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id,
                                             CUgraph *graph, const CUgraphNode **dependencies,
                                             const void **edges, size_t *count);
CU_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CU_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    ENTER_CONTEXT("cuStreamBeginCapture_v2");
    struct CUstream_st *s = stream_of(stream);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    if (!s) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* the legacy stream */
    if (s->capture || mode < 0 || mode > 2)
        DONE(s->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE);
    s->capture = calloc(1, sizeof *s->capture);
    if (!s->capture) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    s->capture_mode = mode;
    s->capture_broken = s->capture_joined = false;
    s->capture_id = ++driver.capture_ids;
    DONE(CUDA_SUCCESS);
}

CUresult cuStreamBeginCapture(CUstream stream) {
    return cuStreamBeginCapture_v2(stream, 0);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    ENTER_CONTEXT("cuStreamEndCapture");
    struct CUstream_st *s = stream_of(stream);
    if (!graph) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!s || !s->capture) DONE(CUDA_ERROR_ILLEGAL_STATE);
    if (s->capture_joined) DONE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    struct CUgraph_st *g = s->capture;
    bool broken = s->capture_broken;
    for (struct CUstream_st *other = driver.streams; other; other = other->next)
        if (other->capture == g) {
            broken = broken || other->capture_broken;
            other->capture = NULL;
        }
    for (struct CUevent_st *e = driver.events; e; e = e->next)
        if (e->capture == g) e->capture = NULL;
    if (broken) {
        free_works(g);
        *graph = NULL;
        DONE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    g->next = graphs;
    graphs = g;
    *graph = g;
    DONE(CUDA_SUCCESS);
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    ENTER_CONTEXT("cuStreamIsCapturing");
    if (!status) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    const struct CUstream_st *s = stream_of(stream);
    if (!s && capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *status = s && s->capture ? s->capture_broken ? 2 : 1 : 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, const void **edges,
                                   size_t *count) {
    if (edges) *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count) {
    ENTER_CONTEXT("cuStreamGetCaptureInfo_v2");
    if (!status) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    const struct CUstream_st *s = stream_of(stream);
    *status = s && s->capture ? s->capture_broken ? 2 : 1 : 0;
    if (id) *id = s && s->capture ? s->capture_id : 0;
    if (graph) *graph = s ? s->capture : NULL;
    if (dependencies) *dependencies = NULL;
    if (count) *count = 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int current;
    ENTER("cuThreadExchangeStreamCaptureMode");
    if (!mode || *mode < 0 || *mode > 2) DONE(CUDA_ERROR_INVALID_VALUE);
    int old = current;
    current = *mode;
    *mode = old;
    DONE(CUDA_SUCCESS);
}

/* Waiting for an event of a capture draws the stream into it; elsewhere all work is done already.
 */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuStreamWaitEvent");
    bool known = false;
    for (const struct CUevent_st *e = driver.events; e; e = e->next) known = known || e == event;
    if (!known || !stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct CUstream_st *s = stream_of(stream);
    if (!event->capture) {
        if (s && s->capture && event->recorded) DONE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        DONE(CUDA_SUCCESS);
    }
    if (!s) DONE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (s->capture && s->capture != event->capture) DONE(CUDA_ERROR_STREAM_CAPTURE_MERGE);
    if (!s->capture) {
        s->capture = event->capture;
        s->capture_joined = true;
        s->capture_broken = false;
        s->capture_mode = 0;
    }
    DONE(CUDA_SUCCESS);
}

/* ---- graphs ---- */

CU_EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CU_EXPORT CUresult cuGraphDestroy(CUgraph graph);
CU_EXPORT CUresult cuGraphClone(CUgraph *copy, CUgraph graph);
CU_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CU_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type);
CU_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, uint64_t flags);
CU_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad,
                                         char *log, size_t log_bytes);
CU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec);
CU_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream);
CU_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);

static bool graph_valid(const struct CUgraph_st *graph) {
    for (const struct CUgraph_st *g = graphs; g; g = g->next)
        if (g == graph) return true;
    return false;
}

static bool exec_valid(const struct CUgraphExec_st *exec) {
    for (const struct CUgraphExec_st *e = executables; e; e = e->next)
        if (e == exec) return true;
    return false;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    ENTER("cuGraphCreate");
    if (!graph || flags) DONE(CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *g = calloc(1, sizeof *g);
    if (!g) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    g->next = graphs;
    graphs = g;
    *graph = g;
    DONE(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph) {
    ENTER("cuGraphDestroy");
    for (struct CUgraph_st **link = &graphs; *link; link = &(*link)->next) {
        if (*link != graph) continue;
        *link = graph->next;
        free_works(graph);
        DONE(CUDA_SUCCESS);
    }
    DONE(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphClone(CUgraph *copy, CUgraph graph) {
    ENTER("cuGraphClone");
    if (!copy || !graph_valid(graph)) DONE(CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *g = graph_copy(graph);
    if (!g) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    g->next = graphs;
    graphs = g;
    *copy = g;
    DONE(CUDA_SUCCESS);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    ENTER("cuGraphGetNodes");
    if (!count || !graph_valid(graph)) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!nodes) {
        *count = graph->count;
        DONE(CUDA_SUCCESS);
    }
    if (!graph->nodes && graph->count) {
        graph->nodes = calloc(graph->count, sizeof *graph->nodes);
        if (!graph->nodes) DONE(CUDA_ERROR_OUT_OF_MEMORY);
        for (size_t i = 0; i < graph->count; i++)
            graph->nodes[i] = (struct CUgraphNode_st){graph, i};
    }
    size_t n = *count < graph->count ? *count : graph->count;
    for (size_t i = 0; i < n; i++) nodes[i] = &graph->nodes[i];
    for (size_t i = n; i < *count; i++) nodes[i] = NULL;
    *count = n;
    DONE(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetType(CUgraphNode node, int *type) {
    ENTER("cuGraphNodeGetType");
    if (!node || !type || !graph_valid(node->graph)) DONE(CUDA_ERROR_INVALID_VALUE);
    switch (node->graph->works[node->index].kind) {
    case WORK_KERNEL: *type = 0; break;
    case WORK_COPY: *type = 1; break;
    case WORK_SET: *type = 2; break;
    case WORK_HOST: *type = 3; break;
    default: *type = 5; break;
    }
    DONE(CUDA_SUCCESS);
}

static int instantiate(CUgraphExec *exec, CUgraph graph) {
    if (!exec || !graph_valid(graph)) return CUDA_ERROR_INVALID_VALUE;
    struct CUgraphExec_st *e = calloc(1, sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    e->graph = graph_copy(graph);
    if (!e->graph) {
        free(e);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    e->next = executables;
    executables = e;
    *exec = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, uint64_t flags) {
    (void)flags;
    ENTER_CONTEXT("cuGraphInstantiateWithFlags");
    DONE(instantiate(exec, graph));
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *log,
                               size_t log_bytes) {
    ENTER_CONTEXT("cuGraphInstantiate_v2");
    if (bad) *bad = NULL;
    if (log && log_bytes) *log = 0;
    DONE(instantiate(exec, graph));
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER("cuGraphExecDestroy");
    for (struct CUgraphExec_st **link = &executables; *link; link = &(*link)->next) {
        if (*link != exec) continue;
        *link = exec->next;
        free_works(exec->graph);
        free(exec);
        DONE(CUDA_SUCCESS);
    }
    DONE(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    ENTER_CONTEXT("cuGraphUpload");
    DONE(exec_valid(exec) && stream_valid(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER_CONTEXT("cuGraphLaunch");
    if (!exec_valid(exec)) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct CUstream_st *s = stream_of(stream);
    if (s && s->capture) DONE(CUDA_ERROR_NOT_SUPPORTED); /* child graphs are not built */
    if (!s && capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    for (size_t i = 0; i < exec->graph->count; i++) {
        const struct work *w = &exec->graph->works[i];
        if (w->kind == WORK_KERNEL && !function_valid(w->function)) DONE(CUDA_ERROR_INVALID_HANDLE);
        int result = work_run(w);
        struct CUctx_st *context = driver_current();
        if (result && context->error == result) DONE(CUDA_SUCCESS); /* shows at the next call */
        if (result) DONE(result);
    }
    DONE(CUDA_SUCCESS);
}

void graphs_free(void) {
    while (graphs) {
        struct CUgraph_st *next = graphs->next;
        free_works(graphs);
        graphs = next;
    }
    while (executables) {
        struct CUgraphExec_st *next = executables->next;
        free_works(executables->graph);
        free(executables);
        executables = next;
    }
}
