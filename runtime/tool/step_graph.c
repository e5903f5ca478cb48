/*
 * A decode step of all layers as a graph: captured once, replayed for any batch of as many tokens.
 * What changes from step to step stands in buffers, which the pool fills; addresses, strides and
 * counts are the captured ones, and rows of the batch without a token are padding.
 */
#include "step.h"

#include <stdio.h>

static bool fail(const char *what, CUresult code) {
    fprintf(stderr, "kvforge-run: %s gives %d\n", what, (int)code);
    return false;
}

bool step_wants_graph(struct step *step) {
    const struct kvf_driver *driver = step->session->driver;
    uint32_t tokens = step->options.batch_requests * (step->session->model.drafts + 1);
    step->replayed = false;
    if (!step->options.graphs || step->longer || tokens > step->options.batch_tokens) return false;
    if (!driver->cuStreamCreate || !driver->cuStreamBeginCapture_v2 ||
        !driver->cuStreamEndCapture || !driver->cuGraphInstantiateWithFlags ||
        !driver->cuGraphLaunch)
        return false;
    if (++step->short_steps % 2) return false;
    step->padded = tokens;
    step->requests = step->options.batch_requests;
    return step->replayed = true;
}

static bool capture(struct step *step) {
    const struct kvf_driver *driver = step->session->driver;
    uint64_t launches = step->launches;
    CUgraph graph;
    CUstream stream;
    CUresult code = driver->cuStreamCreate(&stream, 0);
    if (code) return fail("cuStreamCreate", code);
    code = driver->cuStreamBeginCapture_v2(stream, 1 /* of this thread */);
    if (code) return fail("cuStreamBeginCapture", code);
    step->stream = stream;
    bool good = step_layers(step, true);
    step->stream = NULL;
    step->launches = launches; /* nothing has run yet */
    code = driver->cuStreamEndCapture(stream, &graph);
    if (code) return fail("cuStreamEndCapture", code);
    code = driver->cuGraphInstantiateWithFlags(&step->graph, graph, 0);
    if (driver->cuGraphDestroy) driver->cuGraphDestroy(graph);
    if (driver->cuStreamDestroy_v2) driver->cuStreamDestroy_v2(stream);
    return code ? fail("cuGraphInstantiate", code) : good;
}

bool step_replay(struct step *step) {
    if (!step->graph && !capture(step)) return false;
    CUresult code = step->session->driver->cuGraphLaunch(step->graph, NULL);
    step->replays++;
    return code ? fail("cuGraphLaunch", code) : true;
}

void step_graph_close(struct step *step) {
    if (step->graph && step->session->driver->cuGraphExecDestroy)
        step->session->driver->cuGraphExecDestroy(step->graph);
}
