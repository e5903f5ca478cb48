# kvforge: `make demo` and `make test` do everything on a fresh machine; `make help` lists the rest.
.DEFAULT_GOAL := all
BUILD       ?= build
CC          ?= cc
CXX         ?= g++
AR          ?= ar
PKG_CONFIG  ?= pkg-config
LLVM_CONFIG ?= llvm-config-19
LUA         ?= lua5.4
JOBS        ?= 2
PREFIX      ?= /usr/local
CFLAGS      ?= -O2 -g
EXECUTOR_CFLAGS ?= -O3

VERSION  := 0.1.0
ABI      := 0
WARNINGS := -Wall -Wextra -Wshadow -Wconversion
# Products and sums must round separately wherever the compiler might fuse them.
BASE     := -std=c17 -D_GNU_SOURCE -DKVF_VERSION='"$(VERSION)"' -fPIC -fvisibility=hidden \
            -ffp-contract=off -pthread -MMD -MP $(WARNINGS) $(SANITIZE)
LDFLAGS  += $(SANITIZE)

# ---- sources: a new file in a folder is found by itself ----
GEN_SRC       := $(wildcard gen/*.c)
LIB_SRC       := $(wildcard runtime/*.c runtime/cache/*.c runtime/pool/*.c)
EXECUTOR_SRC  := $(wildcard runtime/executor/*.c)
REFERENCE_SRC := $(wildcard runtime/reference/*.c)
TOOL_SRC      := $(wildcard runtime/tool/*.c)
EMBED_LUA     := $(sort $(wildcard lua/kvforge/*.lua templates/*.lua templates/lib/*.lua))
TEST_C        := $(wildcard tests/*.c)
TEST_LUA      := $(sort $(wildcard tests/*_test.lua))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
GEN_OBJ       := $(call obj,$(GEN_SRC)) $(BUILD)/obj/embedded.o
LIB_OBJ       := $(call obj,$(LIB_SRC))
EXECUTOR_OBJ  := $(call obj,$(EXECUTOR_SRC))
REFERENCE_OBJ := $(call obj,$(REFERENCE_SRC))
TOOL_OBJ      := $(call obj,$(TOOL_SRC))
TEST_BIN      := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_C))

KVFORGE     := $(BUILD)/bin/kvforge
KVFORGE_RUN := $(BUILD)/bin/kvforge-run
LIB_A       := $(BUILD)/lib/libkvforge.a
LIB_SO      := $(BUILD)/lib/libkvforge.so
EXECUTOR    := $(BUILD)/executor/libcuda.so.1
EXAMPLES    := $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))

# ---- what other packages bring (asked only when something is built with it) ----
LLVM_PARTS   := core analysis passes target nvptxcodegen nvptxdesc nvptxinfo bitwriter
LLVM_LINK    ?= static
LLVM_CFLAGS   = $(shell $(LLVM_CONFIG) --cflags | tr ' ' '\n' | grep -E '^-[ID]')
LLVM_LIBS     = $(shell $(LLVM_CONFIG) --link-$(LLVM_LINK) --ldflags --libs $(LLVM_PARTS) --system-libs)
LUA_CFLAGS    = $(shell $(PKG_CONFIG) --cflags lua5.4)
LUA_LIBS      = $(shell $(PKG_CONFIG) --libs lua5.4)
LIB_LIBS      = $(shell $(PKG_CONFIG) --libs libxxhash) -lmd -ldl -lm
RUN_LIBS      = $(shell $(PKG_CONFIG) --libs jansson) $(LIB_LIBS)

# ---- products ----
.PHONY: all
all: $(KVFORGE) $(KVFORGE_RUN) $(LIB_A) $(LIB_SO) $(EXECUTOR) $(EXAMPLES)

$(BUILD)/obj/gen/%.o: gen/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LLVM_CFLAGS) $(LUA_CFLAGS) -c $< -o $@

$(BUILD)/obj/runtime/executor/%.o: runtime/executor/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(EXECUTOR_CFLAGS) -c $< -o $@

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -Iruntime -c $< -o $@

# The Lua files travel inside the program, each as a C string.
# The list of them is a file too, so that one added or removed is noticed.
.PHONY: FORCE
$(BUILD)/embedded.list: FORCE
	@mkdir -p $(@D)
	@echo '$(EMBED_LUA)' | cmp -s - $@ || echo '$(EMBED_LUA)' > $@

$(BUILD)/embedded.c: $(EMBED_LUA) gen/embed.lua $(BUILD)/embedded.list
	@mkdir -p $(@D)
	$(LUA) gen/embed.lua $(EMBED_LUA) > $@.new && mv $@.new $@

$(BUILD)/obj/embedded.o: $(BUILD)/embedded.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -Igen -c $< -o $@

$(KVFORGE): $(GEN_OBJ)
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) -Wl,--gc-sections -o $@ $(GEN_OBJ) $(LLVM_LIBS) $(LUA_LIBS) -lmd -ldl -lm

$(LIB_A): $(LIB_OBJ)
	@mkdir -p $(@D)
	rm -f $@ && $(AR) rcs $@ $(LIB_OBJ)

$(LIB_SO).$(ABI): $(LIB_OBJ)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libkvforge.so.$(ABI) -pthread -o $@ $(LIB_OBJ) $(LIB_LIBS)

$(LIB_SO): $(LIB_SO).$(ABI)
	ln -sf $(notdir $<) $@

$(EXECUTOR): $(EXECUTOR_OBJ)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libcuda.so.1 -pthread -o $@ $(EXECUTOR_OBJ) -lm

$(KVFORGE_RUN): $(TOOL_OBJ) $(REFERENCE_OBJ) $(LIB_A)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $(TOOL_OBJ) $(REFERENCE_OBJ) $(LIB_A) $(RUN_LIBS)

# An example may use the header of one of these bundles.
FLASH  := $(BUILD)/deepseek-v4-flash-ring
NARROW := $(BUILD)/flash-narrow
$(FLASH)/manifest.json: examples/deepseek-v4-flash-ring.lua $(KVFORGE)
	$(KVFORGE) build $< -o $(FLASH) --report $(FLASH).report.json

$(NARROW)/manifest.json: examples/flash-narrow.lua $(KVFORGE)
	$(KVFORGE) build $< -o $(NARROW)

$(BUILD)/examples/%: examples/%.c $(LIB_A) | $(FLASH)/manifest.json $(NARROW)/manifest.json
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime -I$(FLASH) -I$(NARROW) $< -o $@ $(LIB_A) $(RUN_LIBS)

# ---- tests: the first word of a test's name says what it is linked with ----
$(BUILD)/tests/executor_%: tests/executor_%.c $(EXECUTOR_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime -Iruntime/executor $< -o $@ $(EXECUTOR_OBJ) -ldl -lm

$(BUILD)/tests/gen_%: tests/gen_%.c $(GEN_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -Igen $(LLVM_CFLAGS) $(LUA_CFLAGS) -c $< -o $@.o
	$(CXX) $(LDFLAGS) -o $@ $@.o $(filter-out %/gen/main.o,$(GEN_OBJ)) $(LLVM_LIBS) $(LUA_LIBS) -lmd -ldl -lm

# A make-believe CUDA driver, and one from before cuGetProcAddress.
FAKE := $(BUILD)/tests/fake/libcuda.so.1 $(BUILD)/tests/fake/old/libcuda.so.1
$(BUILD)/tests/fake/old/libcuda.so.1: FAKE_CFLAGS := -DFAKE_OLD
$(FAKE): tests/fake/fake_cuda.c tests/fake/fake_cuda.h
	@mkdir -p $(@D)
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(CFLAGS) $(LDFLAGS) $(FAKE_CFLAGS) -Iruntime -shared $< -o $@

# Sanitizers have a malloc of their own, so the failing one is put in front of the library at link time.
$(BUILD)/tests/runtime_malloc: LDFLAGS += $(if $(findstring fsanitize,$(SANITIZE)),$(addprefix -Wl$(comma)--wrap=,malloc calloc realloc strdup realpath))
comma := ,
$(BUILD)/tests/runtime_%: tests/runtime_%.c $(LIB_A) $(FAKE)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime $< -o $@ $(LIB_A) $(RUN_LIBS)

$(BUILD)/tests/%: tests/%.c $(LIB_A) $(REFERENCE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime -Iruntime/reference $< -o $@ $(REFERENCE_OBJ) $(LIB_A) $(RUN_LIBS)

.PHONY: packages build-test check
packages:
	@.ci/packages

check: all $(TEST_BIN)
	KVF_BUILD=$(BUILD) KVF_SANITIZE='$(SANITIZE)' prove -j$(JOBS) --exec '' $(TEST_BIN) $(addprefix ./,$(TEST_LUA))

# What takes long: the pool's random operations by the hundred million, its interleavings ten deep; exp2 of every
# float; models in which every two options meet, and specs at the edges of every field; every kernel of the real models in
# sixteen orders.
.PHONY: test-long
test-long: check
	$(BUILD)/tests/pool_fuzz $(or $(OPERATIONS),100000000)
	$(BUILD)/tests/pool_interleavings 10
	$(BUILD)/tests/reference_exp2 --long
	KVF_BUILD=$(BUILD) prove -j$(JOBS) --exec '' ./tests/matrix.lua ./tests/shapes.lua
	set -e; for model in flash-narrow deepseek-v4-flash deepseek-v4-pro; do \
	    $(KVFORGE) build examples/$$model.lua -o $(BUILD)/$$model; \
	    $(KVFORGE_RUN) verify --driver executor --schedules 16 --jobs $(JOBS) $(BUILD)/$$model; done

.PHONY: test demo
test: packages
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@$(MAKE) --no-print-directory -j$(JOBS) check

demo: packages
	@$(MAKE) --no-print-directory -j$(JOBS) all
	$(KVFORGE) build examples/deepseek-v4-flash-ring.lua -o $(FLASH) --report $(FLASH).report.json
	$(KVFORGE_RUN) demo $(FLASH) --report $(FLASH).report.json
	$(KVFORGE) build examples/flash-narrow.lua -o $(NARROW)
	$(KVFORGE_RUN) decode $(NARROW)
	$(KVFORGE) build examples/deepseek-v4-flash.lua -o $(BUILD)/deepseek-v4-flash
	$(KVFORGE_RUN) decode --flash $(BUILD)/deepseek-v4-flash

# ---- benchmarks: each program prints its own table; executor_* ones link the executor ----
BENCH_BIN     := $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
BENCH_LIB_OBJ := $(call obj,$(wildcard bench/lib/*.c))

$(BUILD)/obj/bench/lib/same.o: | $(FLASH)/manifest.json
$(BUILD)/obj/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -Iruntime -Iruntime/executor -I$(FLASH) -c $< -o $@

$(BUILD)/bench/libbench.a: $(BENCH_LIB_OBJ)
	@mkdir -p $(@D)
	rm -f $@ && $(AR) rcs $@ $(BENCH_LIB_OBJ)

$(BUILD)/bench/executor_%: $(BUILD)/obj/bench/executor_%.o $(BUILD)/bench/libbench.a $(EXECUTOR_OBJ)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ -ldl -lm

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(BUILD)/bench/libbench.a $(LIB_A) $(FAKE)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter-out $(FAKE),$^) $(RUN_LIBS)

# It runs kernels as kvforge-run does.
$(BUILD)/bench/twins: $(BUILD)/obj/bench/twins.o $(BUILD)/bench/libbench.a $(filter-out %/main.o,$(TOOL_OBJ)) $(REFERENCE_OBJ) $(LIB_A)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ $(RUN_LIBS)

# Tests of what the benchmarks measure with; without the parts that need a bundle's header or kvforge-run's parts.
BENCH_TEST_OBJ := $(filter-out %/same.o %/pair.o,$(BENCH_LIB_OBJ))
$(BUILD)/tests/bench_%: tests/bench_%.c $(BENCH_TEST_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime -Ibench/lib $< -o $@ $(BENCH_TEST_OBJ) $(RUN_LIBS)

# The tests build them too, so that they cannot rot unseen; objects on the way stay.
check: $(BENCH_BIN)
.SECONDARY: $(call obj,$(wildcard bench/*.c)) $(BENCH_LIB_OBJ)

.PHONY: bench
bench: all $(BENCH_BIN)
	@set -e; for program in $(BENCH_BIN); do echo "== $$program"; KVF_BUILD=$(BUILD) $$program; done

# Measured tables, written anew where they stand.
.PHONY: tables
tables: all $(BUILD)/bench/twins
	KVF_BUILD=$(BUILD) $(LUA) bench/kernel_table.lua > $(BUILD)/kernels.table
	$(LUA) bench/insert.lua README.md kernels < $(BUILD)/kernels.table
	KVF_BUILD=$(BUILD) $(BUILD)/bench/twins > $(BUILD)/twins.out
	if grep -q attn_mma $(BUILD)/twins.out; then { echo '```'; grep -v '^#' $(BUILD)/twins.out; echo '```'; } | \
	    $(LUA) bench/insert.lua docs/bench.md twins; fi

# ---- a real GPU, where there is one; GPU_DRIVER=executor tries the scripts without ----
.PHONY: test-gpu bench-gpu
test-gpu: all
	KVF_BUILD=$(BUILD) GPU_DRIVER=$(or $(GPU_DRIVER),cuda) $(LUA) bench/gpu.lua test
bench-gpu: all $(BUILD)/bench/twins
	KVF_BUILD=$(BUILD) GPU_DRIVER=$(or $(GPU_DRIVER),cuda) GPU_BENCH='$(GPU_BENCH)' $(LUA) bench/gpu.lua bench

# ---- install ----
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
# Not in LIBDIR itself: nobody may find the executor in place of a real driver by accident.
EXECDIR    := $(PREFIX)/lib/kvforge
INSTALL    ?= install
INSTALLED   = $(BINDIR)/kvforge $(BINDIR)/kvforge-run $(LIBDIR)/libkvforge.a $(LIBDIR)/libkvforge.so.$(ABI) \
              $(LIBDIR)/libkvforge.so $(LIBDIR)/pkgconfig/kvforge.pc $(INCLUDEDIR)/kvforge.h \
              $(EXECDIR)/libcuda.so.1 $(MANDIR)/man1/kvforge.1 $(MANDIR)/man1/kvforge-run.1

.PHONY: install uninstall
install: $(KVFORGE) $(KVFORGE_RUN) $(LIB_A) $(LIB_SO) $(EXECUTOR)
	$(INSTALL) -d $(sort $(dir $(addprefix $(DESTDIR),$(INSTALLED))))
	$(INSTALL) -m 755 $(KVFORGE) $(KVFORGE_RUN) $(DESTDIR)$(BINDIR)
	$(INSTALL) -m 644 $(LIB_A) $(LIB_SO).$(ABI) $(DESTDIR)$(LIBDIR)
	ln -sf libkvforge.so.$(ABI) $(DESTDIR)$(LIBDIR)/libkvforge.so
	$(INSTALL) -m 644 $(EXECUTOR) $(DESTDIR)$(EXECDIR)
	$(INSTALL) -m 644 runtime/kvforge.h $(DESTDIR)$(INCLUDEDIR)
	$(INSTALL) -m 644 docs/kvforge.1 docs/kvforge-run.1 $(DESTDIR)$(MANDIR)/man1
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|; s|@EXECDIR@|$(EXECDIR)|' kvforge.pc.in \
	    > $(DESTDIR)$(LIBDIR)/pkgconfig/kvforge.pc

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(DESTDIR)$(EXECDIR)

# ---- checks of the code itself; each in a build directory of its own ----
.PHONY: asan tsan coverage lint lint-format lint-lua lint-tidy fuzz check-c
check-c: $(TEST_BIN)
	KVF_BUILD=$(BUILD) KVF_SANITIZE='$(SANITIZE)' prove -j$(JOBS) --exec '' $(TEST_BIN)

UBSAN := undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
asan:
	ASAN_OPTIONS=detect_stack_use_after_return=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp \
	    $(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/asan SANITIZE='-fsanitize=address,$(UBSAN)' all check
tsan:
	$(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/tsan SANITIZE='-fsanitize=thread' $(EXECUTOR:$(BUILD)/%=$(BUILD)/tsan/%) check-c
coverage:
	$(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/coverage SANITIZE=--coverage CFLAGS='-O0 -g' all check
	$(LUA) tests/coverage.lua $(BUILD)/coverage

C_FILES   := $(wildcard gen/*.[ch] runtime/*.[ch] runtime/*/*.[ch] tests/*.[ch] tests/fake/*.[ch] tests/fuzz/*.[ch] examples/*.[ch] bench/*.[ch] bench/lib/*.[ch])
TIDY      ?= $(firstword $(foreach t,clang-tidy-19 clang-tidy,$(shell command -v $(t))))
FORMAT    ?= $(firstword $(foreach t,clang-format clang-format-19,$(shell command -v $(t))))
LUACHECK  ?= $(shell command -v luacheck)
TIDY_SRC  ?= $(filter %.c,$(filter-out tests/fake/%,$(C_FILES)))
lint: ; @$(MAKE) --no-print-directory -k lint-format lint-lua lint-tidy
lint-format:
	$(if $(FORMAT),@$(FORMAT) --dry-run -Werror $(C_FILES),@echo "lint: no clang-format, skipped")
lint-lua:
	$(if $(LUACHECK),@$(LUACHECK) -q lua templates tests gen examples bench,@echo "lint: no luacheck, skipped")
lint-tidy:
	$(if $(TIDY),@printf '%s\n' $(TIDY_SRC) | xargs -P $(JOBS) -I{} $(TIDY) --quiet {} -- \
	    $(filter-out -MMD -MP,$(BASE)) -Iruntime -Iruntime/executor -Iruntime/reference -Igen -Itests -Itests/fake -Ibench/lib \
	    -I$(FLASH) -I$(NARROW) $(LLVM_CFLAGS) $(LUA_CFLAGS),@echo "lint: no clang-tidy, skipped")

# Fuzzers: tests/fuzz/NAME.c, linked by the first word of the name as tests are. With libFuzzer where clang
# has it, else with a driver of our own that changes the seeds at random. Leaks are looked for once, at the end:
# after every input it takes fifty times as long.
FUZZ_CC    ?= clang-19
FUZZ_CXX   ?= clang++-19
FUZZ_RUNS  ?= 1000000
FUZZ_SRC   := $(filter-out tests/fuzz/driver.c,$(wildcard tests/fuzz/*.c))
FUZZ_BIN   := $(FUZZ_SRC:tests/fuzz/%.c=$(BUILD)/fuzzers/%)
FUZZ_MAIN  ?= tests/fuzz/driver.c
HAVE_LIBFUZZER = $(shell echo 'int LLVMFuzzerTestOneInput(void){return 0;}' | \
                 $(FUZZ_CC) -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null && echo yes)
fuzz:
	@if [ '$(HAVE_LIBFUZZER)' = yes ]; then \
	    $(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) CXX=$(FUZZ_CXX) run-fuzzers \
	        SANITIZE='-fsanitize=address,fuzzer-no-link,$(UBSAN)' FUZZ_MAIN=-fsanitize=fuzzer; \
	else \
	    $(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/fuzz run-fuzzers SANITIZE='-fsanitize=address,$(UBSAN)'; \
	fi

.PHONY: run-fuzzers
run-fuzzers: $(FUZZ_BIN)
	for fuzzer in $(FUZZ_BIN); do \
	    name=$$(basename $$fuzzer); echo "$$name: $(FUZZ_RUNS) inputs"; mkdir -p $(BUILD)/corpus/$$name; \
	    $$fuzzer -runs=$(FUZZ_RUNS) -seed=1 -timeout=10 -detect_leaks=0 -verbosity=0 -print_final_stats=1 \
	        $(BUILD)/corpus/$$name $$(ls -d tests/fuzz/seeds/$$name 2>/dev/null) || exit 1; done

$(BUILD)/fuzzers/executor_%: tests/fuzz/executor_%.c $(EXECUTOR_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime -Iruntime/executor $< $(FUZZ_MAIN) -o $@ $(EXECUTOR_OBJ) -ldl -lm

$(BUILD)/fuzzers/gen_%: tests/fuzz/gen_%.c $(GEN_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -Igen $(LLVM_CFLAGS) $(LUA_CFLAGS) -c $< -o $@.o
	$(if $(filter %.c,$(FUZZ_MAIN)),$(CC) $(BASE) $(CFLAGS) -c $(FUZZ_MAIN) -o $@.main.o)
	$(CXX) $(LDFLAGS) -o $@ $@.o $(patsubst %.c,$@.main.o,$(FUZZ_MAIN)) $(filter-out %/gen/main.o,$(GEN_OBJ)) $(LLVM_LIBS) $(LUA_LIBS) -lmd -ldl -lm

$(BUILD)/fuzzers/runtime_%: tests/fuzz/runtime_%.c $(LIB_A)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime $< $(FUZZ_MAIN) -o $@ $(LIB_A) $(LIB_LIBS)

# The symbols that programs may rely on; see tests/runtime_install_test.lua.
.PHONY: exports
exports: $(LIB_SO)
	nm -D --defined-only $< | awk '{ print $$3 }' | LC_ALL=C sort > tests/exports.txt

.PHONY: help
help:
	@echo 'make             build everything into $(BUILD)'
	@echo 'make demo        build, generate the kernels of DeepSeek-V4-Flash, run and compare them'
	@echo 'make test        install what is missing, build, run every test that needs no GPU'
	@echo 'make check       run the tests without installing anything'
	@echo 'make test-long   the tests, and the long ones of pool, generator and kernels'
	@echo 'make install     PREFIX=$(PREFIX) DESTDIR=; make uninstall takes it away again'
	@echo 'make bench       generation beside NVRTC and nvcc, kernels beside CUDA C, loading: docs/bench.md'
	@echo 'make tables      the tables of kernels in README.md and docs/bench.md, measured anew'
	@echo 'make test-gpu    every kernel, the demo and whole steps on the GPU, if there is one'
	@echo 'make bench-gpu   the time of every kernel there, beside its copy and matrix rates'
	@echo 'make asan, tsan  the tests under sanitizers'
	@echo 'make fuzz        FUZZ_RUNS=$(FUZZ_RUNS) inputs for each fuzzer in tests/fuzz'
	@echo 'make lint        clang-format, luacheck and clang-tidy'
	@echo 'make coverage    lines executed by the tests, file by file'
	@echo 'make clean       remove $(BUILD)'

.PHONY: clean
clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
