#include "target.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only the back end we link; LLVM's own header lists every target it was built with. */
void LLVMInitializeNVPTXTargetInfo(void);
void LLVMInitializeNVPTXTarget(void);
void LLVMInitializeNVPTXTargetMC(void);
void LLVMInitializeNVPTXAsmPrinter(void);

#define TRIPLE "nvptx64-nvidia-cuda"

/*
 * LLVM 19 knows chips up to sm_90a. Later ones get sm_90's instructions under a rewritten header;
 * what only they have comes from the table of inline assembly.
 */
static const struct target targets[] = {
    {"sm_80", 80, false, "sm_80", 70, 163 * 1024},   {"sm_89", 89, false, "sm_89", 78, 99 * 1024},
    {"sm_90", 90, false, "sm_90", 78, 227 * 1024},   {"sm_90a", 90, true, "sm_90a", 80, 227 * 1024},
    {"sm_100a", 100, true, "sm_90", 86, 227 * 1024}, {"sm_120a", 120, true, "sm_90", 87, 99 * 1024},
};

#define N_TARGETS (sizeof targets / sizeof *targets)

const struct target *target_find(const char *name) {
    for (size_t i = 0; i < N_TARGETS; i++)
        if (!strcmp(targets[i].name, name)) return &targets[i];
    return NULL;
}

const char *target_names(void) {
    return "sm_80, sm_89, sm_90, sm_90a, sm_100a, sm_120a";
}

int target_driver(unsigned ptx) {
    unsigned major = ptx / 10, minor = ptx % 10;
    if (major == 7) return (int)(11000 + 10 * minor);               /* CUDA 11.x: PTX 7.x */
    if (major == 8 && minor <= 5) return (int)(12000 + 10 * minor); /* CUDA 12.0 to 12.5 */
    if (major == 8) return (int)(12000 + 10 * (minor + 1));         /* 12.7 (8.6), 12.8 (8.7) */
    return (int)(1000 * (major + 4) + 10 * minor);                  /* CUDA 13.x: PTX 9.x */
}

void target_init(void) {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
}

/* What LLVM is asked for: its newest PTX version is 8.5, the header says the rest. */
static LLVMTargetMachineRef machine(const char *cpu, unsigned ptx, char **error) {
    LLVMTargetRef llvm;
    char features[16];
    if (LLVMGetTargetFromTriple(TRIPLE, &llvm, error)) return NULL;
    snprintf(features, sizeof features, "+ptx%u", ptx > 85 ? 85 : ptx);
    return LLVMCreateTargetMachine(llvm, TRIPLE, cpu, features, LLVMCodeGenLevelAggressive,
                                   LLVMRelocDefault, LLVMCodeModelDefault);
}

void target_prepare(LLVMModuleRef module) {
    LLVMSetTarget(module, TRIPLE);
    LLVMSetDataLayout(module, "e-i64:64-i128:128-v16:16-v32:32-n16:32:64");
}

/* A copy of `text` with `line` in place of the line that begins with `start`; null without one. */
static char *replace_line(const char *text, const char *start, const char *line) {
    const char *at = strstr(text, start);
    if (!at || (at != text && at[-1] != '\n')) return NULL;
    const char *end = at + strcspn(at, "\n");
    size_t size = (size_t)(at - text) + strlen(line) + strlen(end) + 1;
    char *out = malloc(size);
    if (out) snprintf(out, size, "%.*s%s%s", (int)(at - text), text, line, end);
    return out;
}

/*
 * LLVM names itself and its build in a comment; the header must be ours, and exactly what was asked
 * for whatever LLVM made of it.
 */
static char *set_header(const char *text, const struct target *target, unsigned ptx) {
    char version[32], name[32];
    snprintf(version, sizeof version, ".version %u.%u", ptx / 10, ptx % 10);
    snprintf(name, sizeof name, ".target %s", target->name);
    char *with_version = replace_line(text, ".version ", version);
    char *whole = with_version ? replace_line(with_version, ".target ", name) : NULL;
    free(with_version);
    return whole;
}

static char *run_passes(LLVMModuleRef module, LLVMTargetMachineRef tm, const char *passes) {
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef failure = LLVMRunPasses(module, passes, tm, options);
    LLVMDisposePassBuilderOptions(options);
    if (!failure) return NULL;
    char *message = LLVMGetErrorMessage(failure), *copy = strdup(message);
    LLVMDisposeErrorMessage(message);
    return copy;
}

char *target_emit(const struct target *target, unsigned ptx, LLVMModuleRef module,
                  const char *passes, size_t *bytes, char **error) {
    *error = NULL;
    if (LLVMVerifyModule(module, LLVMReturnStatusAction, error)) return NULL;
    LLVMDisposeMessage(*error);
    *error = NULL;
    LLVMTargetMachineRef tm = machine(target->cpu, ptx, error);
    if (!tm) return NULL;
    *error = run_passes(module, tm, passes);
    LLVMMemoryBufferRef buffer = NULL;
    char *text = NULL;
    if (!*error &&
        !LLVMTargetMachineEmitToMemoryBuffer(tm, module, LLVMAssemblyFile, error, &buffer)) {
        /* LLVM ends a buffer's text with a zero byte. */
        text = set_header(LLVMGetBufferStart(buffer), target, ptx);
        LLVMDisposeMemoryBuffer(buffer);
        if (text)
            *bytes = strlen(text);
        else
            *error = strdup("the emitted text has no .version and .target lines");
    }
    LLVMDisposeTargetMachine(tm);
    return text;
}
