/* Every spelling of every arithmetic form that the decoder takes is one that ptxas takes. */
#include <stdarg.h>
#include <unistd.h>

#include "executor_kernels.h"
#include "tap.h"

static FILE *out;
static int form, count;

static bool each(void *context, const char *opcode) {
    static struct kernel_text k;
    struct query q;
    (void)context;
    q_parse(&q, opcode);
    /* Refused by a rule of its own: saturation that cannot change anything. */
    if (q_is(&q, "cvt") && q_has(&q, "sat") && !q_float(q.type[0]) && !q_float(q.type[1])) {
        int to = q_bits(q.type[0]), from = q_bits(q.type[1]);
        bool ts = q_signed(q.type[0]), fs = q_signed(q.type[1]);
        if (ts == fs ? from <= to : !fs && from < to) return true;
    }
    if (!kernel_build(&k, opcode, form_table[form].signature, "", false, 232)) return true;
    fprintf(out, ".visible .entry k%d%s\n", count++, strstr(k.text, "k(") + 1);
    return true;
}

int main(void) {
    const char *ptxas = "/usr/local/cuda/bin/ptxas";
    if (access(ptxas, X_OK)) tap_skip_all("no ptxas");
    char path[] = "/tmp/kvforge-forms-XXXXXX", command[200];
    int file = mkstemp(path);
    out = file < 0 ? NULL : fdopen(file, "w");
    if (!out) tap_skip_all("no temporary file");
    fprintf(out, ".version 9.0\n.target sm_90\n.address_size 64\n");
    for (form = 0; form < FORM_COUNT; form++) {
        const struct form *f = &form_table[form];
        if (f->class <= CLASS_MOVE && !strchr(f->signature, '*') && !strchr(f->signature, 'n') &&
            form != FORM_isspacep)
            form_spell(form, each, NULL);
    }
    fclose(out);
    tap_plan(1);
    snprintf(command, sizeof command,
             "%s -arch=sm_90 -O0 %s -o /dev/null 2>&1 | grep -m5 error >&2", ptxas, path);
    ok(count > 3000 && system(command) != 0, "ptxas takes all %d spellings", count);
    unlink(path);
    return tap_done();
}
