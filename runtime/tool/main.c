/* kvforge-run: run what `kvforge build` wrote, on a GPU or on the executor. */
#include "tool.h"

#include "kvforge.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"info", tool_info, "show a bundle's layer types, kernels and bytes"},
    {"verify", tool_verify, "run every kernel and compare it with its reference, bit for bit"},
    {"plan", tool_plan, "say how many requests and tokens a memory holds"},
    {"profile", tool_profile, "count what every kernel does, and estimate its time on a chip"},
    {"bench", tool_bench, "measure every kernel's time, beside the device's own rates"},
    {"demo", tool_demo, "serve prompts and decode steps through a state cache, and prove it"},
    {"decode", tool_decode, "run whole steps on the pool in many ways: all give the same bits"},
};

#define COMMANDS (sizeof commands / sizeof *commands)

static void usage(FILE *out) {
    fprintf(out, "usage: kvforge-run COMMAND [options] BUNDLE\n"
                 "       kvforge-run --help | --version\n\ncommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`kvforge-run COMMAND --help` lists a command's options.\n"
                 "Exit status: 0 good, 1 failed, 2 wrong usage.\n");
}

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
        usage(stdout);
        return TOOL_GOOD;
    }
    if (!strcmp(word, "--version")) {
        printf("kvforge-run %s\n", kvf_version());
        return TOOL_GOOD;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (!strcmp(word, commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    if (*word) fprintf(stderr, "kvforge-run: there is no command \"%s\"\n", word);
    usage(stderr);
    return TOOL_USAGE;
}
