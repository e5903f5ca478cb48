/* kvforge: the generator's command line. */
#include "build.h"
#include "bundle_write.h"
#include "target.h"

#include <errno.h>
#include <getopt.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_CONFIG   ((size_t)4 << 20)
#define MEMORY_LIMIT ((size_t)64 << 20)

static const char usage_text[] =
    "usage: kvforge build SPEC [-o DIR] [--target T]... [--keep ir] [--embed] [--cubin]\n"
    "               [--report FILE]\n"
    "       kvforge check SPEC [--target T]...\n"
    "       kvforge explain SPEC [--json]\n"
    "       kvforge import CONFIG.json [-o SPEC] [--name N] [--format F] [--index-format F]\n"
    "               [--window-mode M] [--target T]...\n"
    "       kvforge help [spec]\n"
    "       kvforge --help | --version\n"
    "\n"
    "  build    generate a bundle: PTX for every layer type, manifest.json, a C header\n"
    "  check    say what is wrong with a spec\n"
    "  explain  print what a spec resolves to: places, fields, offsets, bytes\n"
    "  import   write a spec from the config.json of a DeepSeek-V4 checkpoint\n"
    "  help     this text; `kvforge help spec` lists every field of a spec\n"
    "\n"
    "  -o, --output PATH    where the bundle goes (default: build/NAME), or the imported spec\n"
    "  --target T           build or check for T instead of the spec's targets; may be repeated\n"
    "  --keep ir            also write the LLVM IR of each module\n"
    "  --embed              also write NAME.c with the whole bundle inside\n"
    "  --cubin              also assemble each module with ptxas; the PTX stays the fallback\n"
    "  --report FILE        write timings, and registers where ptxas is found, as JSON\n"
    "  --templates DIR      read the kernel templates from DIR\n"
    "  --lua DIR            read the Lua modules from DIR\n"
    "  --json               explain as JSON\n"
    "\n"
    "Exit status: 0 good, 1 bad spec or output, 2 bad usage, 70 internal error.\n";

struct command_line {
    struct build_options build;
    bool json;
    unsigned given;        /* OPTION_BIT of what was given */
    const char *import[4]; /* name, format, index_format, window_mode */
};

static const char *const import_flags[4] = {"name", "format", "index_format", "window_mode"};

static int usage_error(const char *what, const char *which) {
    fprintf(stderr, "kvforge: %s%s%s\n%s", what, *which ? " " : "", which,
            "try `kvforge --help`\n");
    return EXIT_BAD_USAGE;
}

/* Whether all that was printed has arrived: a full disk must not look like success. */
static int finish_output(void) {
    int why = errno; /* of an earlier write, if one failed */
    if (fflush(stdout) != 0)
        why = errno;
    else if (!ferror(stdout))
        return EXIT_GOOD;
    fprintf(stderr, "kvforge: cannot write the output%s%s\n", why ? ": " : "",
            why ? strerror(why) : "");
    return EXIT_BAD_SPEC;
}

static int print(const char *text) {
    errno = 0;
    fputs(text, stdout);
    return finish_output();
}

/* ---- commands ---- */

static int print_result(lua_State *L, int failed) {
    if (failed) {
        fprintf(stderr, "kvforge: internal error: %s\n", luaL_tolstring(L, -1, NULL));
        return EXIT_INTERNAL;
    }
    return print(lua_tostring(L, -1));
}

static int command_check(const struct command_line *c) {
    return build_check(&c->build);
}

static int command_explain(const struct command_line *c) {
    int status;
    lua_State *L = build_load(&c->build.host, c->build.spec, &status);
    if (!L) return status;
    int failed = host_require(L, "kvforge.explain");
    if (!failed) {
        lua_insert(L, -2);
        lua_newtable(L);
        lua_pushboolean(L, c->json);
        lua_setfield(L, -2, "json");
        failed = host_call(L, 2, 1);
    }
    status = print_result(L, failed);
    host_close(L);
    return status;
}

/* Push the flags of an import as a table. */
static void push_import_flags(lua_State *L, const struct command_line *c) {
    lua_newtable(L);
    for (int i = 0; i < 4; i++)
        if (c->import[i]) {
            lua_pushstring(L, c->import[i]);
            lua_setfield(L, -2, import_flags[i]);
        }
    if (!c->build.n_targets) return;
    lua_newtable(L);
    for (int i = 0; i < c->build.n_targets; i++) {
        lua_pushstring(L, c->build.targets[i]);
        lua_seti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "targets");
}

static void print_lines(lua_State *L, int list) {
    for (lua_Integer i = 1; lua_istable(L, list) && i <= luaL_len(L, list); i++) {
        lua_geti(L, list, i);
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        lua_pop(L, 1);
    }
}

static int write_spec(const char *path, const char *text) {
    if (!path) return print(text);
    char error[600];
    if (!file_replace(path, text, error, sizeof error)) return EXIT_GOOD;
    fprintf(stderr, "kvforge: %s\n", error);
    return EXIT_BAD_SPEC;
}

static int command_import(const struct command_line *c) {
    char error[256];
    size_t bytes;
    char *text = host_read_file(c->build.spec, MAX_CONFIG, &bytes, error);
    lua_State *L = text ? host_open(&c->build.host) : NULL;
    if (!L) {
        fprintf(stderr, "kvforge: %s\n", text ? "out of memory" : error);
        free(text);
        return EXIT_BAD_SPEC;
    }
    int failed = host_require(L, "kvforge.import");
    if (!failed) {
        lua_pushlstring(L, text, bytes);
        lua_pushstring(L, c->build.spec);
        push_import_flags(L, c);
        failed = host_require(L, "kvforge.kernel_templates");
    }
    if (!failed) {
        lua_getfield(L, -1, "judge");
        lua_remove(L, -2);
        failed = host_call(L, 4, 2);
    }
    int status = EXIT_INTERNAL;
    if (failed) {
        fprintf(stderr, "kvforge: internal error: %s\n", luaL_tolstring(L, -1, NULL));
    } else {
        print_lines(L, lua_gettop(L));
        status = lua_isnil(L, -2) ? EXIT_BAD_SPEC : write_spec(c->build.out, lua_tostring(L, -2));
    }
    host_close(L);
    free(text);
    return status;
}

static int command_help(const struct command_line *c) {
    if (!c->build.spec) return print(usage_text);
    if (strcmp(c->build.spec, "spec") != 0) return usage_error("no help for", c->build.spec);
    lua_State *L = host_open(&c->build.host);
    if (!L) return EXIT_INTERNAL;
    int failed = host_require(L, "kvforge.help") || host_call(L, 0, 1);
    int status = print_result(L, failed);
    host_close(L);
    return status;
}

static int command_build(const struct command_line *c) {
    return build_bundle(&c->build);
}

enum {
    OPTION_OUTPUT = 256,
    OPTION_TARGET,
    OPTION_KEEP,
    OPTION_REPORT,
    OPTION_TEMPLATES,
    OPTION_LUA,
    OPTION_JSON,
    OPTION_EMBED,
    OPTION_CUBIN,
    OPTION_IMPORT,
    OPTION_IMPORT_LAST = OPTION_IMPORT + 3
};
#define OPTION_BIT(option) (1u << ((option)-OPTION_OUTPUT))
#define FROM               (OPTION_BIT(OPTION_TEMPLATES) | OPTION_BIT(OPTION_LUA)) /* of every command */

struct command {
    const char *name;
    int (*run)(const struct command_line *);
    bool needs_spec;
    unsigned options; /* those it takes, besides FROM */
};

static const struct command commands[] = {
    {"build", command_build, true,
     OPTION_BIT(OPTION_OUTPUT) | OPTION_BIT(OPTION_TARGET) | OPTION_BIT(OPTION_KEEP) |
         OPTION_BIT(OPTION_REPORT) | OPTION_BIT(OPTION_EMBED) | OPTION_BIT(OPTION_CUBIN)},
    {"check", command_check, true, OPTION_BIT(OPTION_TARGET)},
    {"explain", command_explain, true, OPTION_BIT(OPTION_JSON)},
    {"import", command_import, true,
     OPTION_BIT(OPTION_OUTPUT) | OPTION_BIT(OPTION_TARGET) | OPTION_BIT(OPTION_IMPORT) |
         OPTION_BIT(OPTION_IMPORT + 1) | OPTION_BIT(OPTION_IMPORT + 2) |
         OPTION_BIT(OPTION_IMPORT_LAST)},
    {"help", command_help, false, 0}};

/* ---- options ---- */

static const struct option options[] = {{"output", 1, 0, OPTION_OUTPUT},
                                        {"target", 1, 0, OPTION_TARGET},
                                        {"keep", 1, 0, OPTION_KEEP},
                                        {"report", 1, 0, OPTION_REPORT},
                                        {"templates", 1, 0, OPTION_TEMPLATES},
                                        {"lua", 1, 0, OPTION_LUA},
                                        {"json", 0, 0, OPTION_JSON},
                                        {"embed", 0, 0, OPTION_EMBED},
                                        {"cubin", 0, 0, OPTION_CUBIN},
                                        {"name", 1, 0, OPTION_IMPORT},
                                        {"format", 1, 0, OPTION_IMPORT + 1},
                                        {"index-format", 1, 0, OPTION_IMPORT + 2},
                                        {"window-mode", 1, 0, OPTION_IMPORT_LAST},
                                        {"help", 0, 0, 'h'},
                                        {"version", 0, 0, 'V'},
                                        {0, 0, 0, 0}};

/* An option that the command would pass over in silence is a mistake. */
static int check_options(const struct command_line *c, const struct command *command) {
    for (const struct option *o = options; o->name; o++) {
        if (o->val < OPTION_OUTPUT || !(c->given & OPTION_BIT(o->val))) continue;
        if ((command->options | FROM) & OPTION_BIT(o->val)) continue;
        fprintf(stderr, "kvforge: %s takes no --%s\ntry `kvforge --help`\n", command->name,
                o->name);
        return EXIT_BAD_USAGE;
    }
    return 0;
}

/* A directory to read from: better refused here than by whoever misses its first file. */
static int read_directory(const char **out) {
    struct stat info;
    if (stat(optarg, &info) || !S_ISDIR(info.st_mode)) return usage_error("no directory:", optarg);
    *out = optarg;
    return 0;
}

static int read_option(struct command_line *c, int option) {
    switch (option) {
    case OPTION_OUTPUT: c->build.out = optarg; return 0;
    case OPTION_TARGET:
        if (!target_find(optarg)) {
            fprintf(stderr, "kvforge: unknown target '%s'; known are %s\n", optarg, target_names());
            return EXIT_BAD_USAGE;
        }
        for (int i = 0; i < c->build.n_targets; i++)
            if (!strcmp(c->build.targets[i], optarg)) return 0;
        c->build.targets[c->build.n_targets++] = optarg;
        return 0;
    case OPTION_KEEP:
        if (strcmp(optarg, "ir") != 0) return usage_error("cannot keep", optarg);
        c->build.keep_ir = true;
        return 0;
    case OPTION_REPORT: c->build.report = optarg; return 0;
    case OPTION_TEMPLATES: return read_directory(&c->build.host.templates_dir);
    case OPTION_LUA: return read_directory(&c->build.host.lua_dir);
    case OPTION_JSON: c->json = true; return 0;
    case OPTION_EMBED: c->build.embed = true; return 0;
    case OPTION_CUBIN: c->build.cubin = true; return 0;
    case OPTION_IMPORT:
    case OPTION_IMPORT + 1:
    case OPTION_IMPORT + 2:
    case OPTION_IMPORT_LAST: c->import[option - OPTION_IMPORT] = optarg; return 0;
    case 'h': exit(print(usage_text));
    case 'V': exit(print("kvforge " KVF_VERSION "\n"));
    default: return usage_error("bad option", "");
    }
}

static int read_command_line(struct command_line *c, int argc, char **argv) {
    int option, status;
    while ((option = getopt_long(argc, argv, "o:hV", options, NULL)) != -1) {
        if (option == 'o') option = OPTION_OUTPUT;
        if ((status = read_option(c, option))) return status;
        if (option >= OPTION_OUTPUT) c->given |= OPTION_BIT(option);
    }
    return 0;
}

int main(int argc, char **argv) {
    struct command_line c = {.build = {.host = {.memory = MEMORY_LIMIT}}};
    int status = read_command_line(&c, argc, argv);
    if (status) return status;
    if (optind >= argc) return usage_error("a command is missing", "");
    const char *name = argv[optind++];
    if (optind < argc) c.build.spec = argv[optind++];
    if (optind < argc) return usage_error("too many arguments:", argv[optind]);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) != 0) continue;
        if (commands[i].needs_spec && !c.build.spec) return usage_error("a spec is missing", "");
        status = check_options(&c, &commands[i]);
        return status ? status : commands[i].run(&c);
    }
    return usage_error("unknown command", name);
}
