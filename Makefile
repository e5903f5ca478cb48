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
LIB_LIBS      = $(shell $(PKG_CONFIG) --libs jansson libxxhash) -lmd -ldl -lm

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
$(BUILD)/embedded.c: $(EMBED_LUA) gen/embed.lua
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
	$(CC) $(LDFLAGS) -pthread -o $@ $(TOOL_OBJ) $(REFERENCE_OBJ) $(LIB_A) $(LIB_LIBS)

# An example may use the header of Flash's bundle.
FLASH := $(BUILD)/deepseek-v4-flash
$(FLASH)/manifest.json: examples/deepseek-v4-flash.lua $(KVFORGE)
	$(KVFORGE) build $< -o $(FLASH) --report $(FLASH).report.json

$(BUILD)/examples/%: examples/%.c $(LIB_A) | $(FLASH)/manifest.json
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime -I$(FLASH) $< -o $@ $(LIB_A) $(LIB_LIBS)

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

$(BUILD)/tests/runtime_%: tests/runtime_%.c $(LIB_A) $(FAKE)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime $< -o $@ $(LIB_A) $(LIB_LIBS)

$(BUILD)/tests/%: tests/%.c $(LIB_A) $(REFERENCE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -Iruntime -Iruntime/reference $< -o $@ $(REFERENCE_OBJ) $(LIB_A) $(LIB_LIBS)

.PHONY: packages build-test check
packages:
	@.ci/packages

check: all $(TEST_BIN)
	KVF_BUILD=$(BUILD) prove -j$(JOBS) --exec '' $(TEST_BIN) $(addprefix ./,$(TEST_LUA))

.PHONY: test demo
test: packages
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@$(MAKE) --no-print-directory -j$(JOBS) check

demo: packages
	@$(MAKE) --no-print-directory -j$(JOBS) all
	$(KVFORGE) build examples/deepseek-v4-flash.lua -o $(FLASH) --report $(FLASH).report.json
	$(KVFORGE_RUN) demo $(FLASH) --report $(FLASH).report.json

.PHONY: clean
clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
