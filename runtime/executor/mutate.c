#include "mutate.h"

#include "report.h"

enum { VICTIM = 9 };

static int mutant_form = -1;
static op_function *mutant_original;

void form_mutate(int form) {
    mutant_form = form;
}

/* The lowest bit; of an approximation, one that no tolerance covers. */
static void flip_slot(struct warp *w, const struct op *o, int32_t slot, uint32_t m) {
    bool rough = strstr(form_table[o->form].pattern, "approx") != NULL;
    if ((m >> VICTIM & 1) && slot > SLOT_SINK)
        w->bank[0][(size_t)slot * LANES + VICTIM] ^= rough ? 0x00400040 : 1;
}

static void flip_predicate(struct warp *w, int32_t index, uint32_t m) {
    if (index > PREDICATE_SINK) w->predicates[index] ^= m & 1u << VICTIM;
}

static bool has_no_effect(const struct op *o) {
    switch (o->form) {
    case FORM_prefetch:
    case FORM_prefetchu:
    case FORM_nop:
    case FORM_setmaxnreg:
    case FORM_pmevent:
    case FORM_barrier_cluster:
    case FORM_membar:
    case FORM_fence:
    case FORM_fence_proxy:
    case FORM_fence_proxy_async: return true;
    default: return false;
    }
}

static void mutant(struct warp *w, const struct op *o, uint32_t m) {
    const struct form *form = &form_table[o->form];
    char first = form->signature[0];
    uint32_t last = w->frame->function->op_count - 1;
    if (has_no_effect(o)) {
        report_lane(w, o, (uint32_t)__builtin_ctz(m), FINDING_CALL, 0, NULL, "a planted fault");
        return;
    }
    /* A barrier's result is written when it is complete, so the whole barrier is left out. */
    if (form->class == CLASS_BARRIER) return;
    if (o->form == FORM_mov_pred || strchr("qQ", first)) {
        if (first) {
            mutant_original(w, o, m);
            flip_predicate(w, o->d, m);
            return;
        }
    }
    if (o->form == FORM_mov_unpack || first == 'x' || first == '{' || first == 'L') {
        mutant_original(w, o, m);
        flip_slot(w, o, o->list[0], m);
        return;
    }
    if (strchr("dDhwWeR", first) ? first != 0 : form->class == CLASS_MOVE) {
        mutant_original(w, o, m);
        flip_slot(w, o, o->d, m);
        return;
    }
    /* Stores, branches, barriers: not done, but for what ends the function's text. */
    if ((uint32_t)(o - w->code) == last) mutant_original(w, o, m);
}

op_function *form_mutated(int form, op_function *original) {
    if (form != mutant_form) return original;
    mutant_original = original;
    return mutant;
}
