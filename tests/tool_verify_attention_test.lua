#!/usr/bin/env lua5.4
-- Attention and the indexer on the executor against their references: row formats, window modes,
-- chips, head counts, schedules; and that faults in their templates are found.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) or not shell.read(executor):find("ldmatrix", 1, true) then
  tap.skip_all("the executor has not been built, or knows no tensor cores")
end

local dir = shell.directory()
local kernels = { "attn", "attn_combine", "indexer_query", "indexer_scores", "indexer_topk" }

-- tiny with other words in its text: pairs of what stands there and what shall.
local function spec(name, changes)
  local text = shell.ring(shell.read("examples/tiny.lua"))
  for from, to in pairs(changes) do
    local first, last = text:find(from, 1, true)
    assert(first, "examples/tiny.lua has no " .. from)
    text = text:sub(1, first - 1) .. to .. text:sub(last + 1)
  end
  shell.write(dir .. "/" .. name .. ".lua", text)
end

local function build(from, to, options)
  return shell.run(("%s build %s/%s.lua -o %s/%s.bundle %s"):format(shell.kvforge, dir, from, dir, to,
    options or ""))
end

-- The failed cases of one kernel, and how many cases there were.
local function verify(bundle, kernel, environment, options)
  local _, text = shell.run(("%s %s verify --driver executor --kernel %s %s %s/%s.bundle"):format(
    environment or "", shell.kvforge_run, kernel, options or "", dir, bundle))
  local failed = {}
  for line in text:gmatch("[^\n]+") do
    if line:find("^not ok") then failed[#failed + 1] = line end
  end
  local cases = tonumber(text:match("# (%d+) cases,")) or 0
  if cases == 0 then failed[1] = text end
  return failed, cases
end

local function passes(bundle, name, environment, options)
  local failed, cases = {}, 0
  for _, kernel in ipairs(kernels) do
    local more, count = verify(bundle, kernel, environment, options)
    table.move(more, 1, #more, #failed + 1, failed)
    cases = cases + count
  end
  if not tap.ok(#failed == 0 and cases > 250, name .. ": equal to the references") then
    tap.note(("%d cases, %d failed:\n%s"):format(cases, #failed,
      table.concat(failed, "\n", 1, math.min(#failed, 10))))
  end
end

local variants = {
  { "token", {} },
  { "bf16", { ['format = "fp8_token"'] = 'format = "bf16"', ["heads = 8"] = "heads = 128" } },
  { "ds-mla", { ['format = "fp8_token"'] = 'format = "fp8_ds_mla"', ["heads = 8"] = "heads = 64",
                ['window_mode = "ring"'] = 'window_mode = "paged", split_rows = 64' } },
  { "two-plane", { ['format = "fp8_token"'] = 'format = "fp8_two_plane"', ["heads = 4"] = "heads = 20",
                   ['"fp8_index"'] = '"fp4_index"',
                   ['window_mode = "ring"'] = 'window_mode = "paged", block = 256' } },
  { "plain", { ["heads = 8"] = "heads = 16", ["topk = 8"] = "topk = 100",
               ['window_mode = "ring"'] = 'window_mode = "ring", hadamard = false, page_align = 576' } },
}

-- File, what stands in it, what shall, the kernel that then goes wrong, and the variant (token).
local faults = {
  { "attn.lua", "live[i]:select(x[i] * scale, -math.huge)", "(x[i] * scale)", "attn" },
  { "attn.lua", "(weights[1] + weights[2]) + (weights[3] + weights[4])",
    "weights[1] + (weights[2] + (weights[3] + weights[4]))", "attn" },
  { "attn.lua", "quarter * (HEADS * APART)):load(4)", "(3 - quarter) * (HEADS * APART)):load(4)", "attn" },
  { "attn.lua", "o[j][h]:get() * alpha", "o[j][h]:get()", "attn" },
  { "lib/gather.lua", "number:ge(0)", "number:ge(-1)", "attn" },
  { "lib/gather.lua", "(first + row):lt(g.window)", "(first + row):le(g.window)", "attn" },
  { "lib/stage.lua", "asm(\"cp_async_wait_all\")", "", "attn" },
  { "lib/stage.lua", "asm(\"cp_async_wait_all\")", "", "indexer_scores" },
  { "lib/stored.lua", "23 - 8 * (i % 4)", "23 - 8 * ((i + 1) % 4)", "attn", "ds-mla" },
  { "lib/gather.lua", "(number // place.rows):to(u64)", "((number // place.rows) & 0xfffff):to(u64)", "attn" },
  { "attn.lua", "gather.expand(rows)\n        barrier()", "gather.expand(rows)", "attn" },
  { "attn_combine.lua", "empty:select(0.0, acc", "empty:select(1.0, acc", "attn_combine" },
  { "attn_combine.lua", "p.sink:at(head):load() * exp2.LOG2E", "p.sink:at(head):load()", "attn_combine" },
  { "indexer_query.lua", "heads ^ -0.5", "heads ^ 0.5", "indexer_query" },
  { "indexer_scores.lua", "{ 16, 8, 4 }", "{ 4, 8, 16 }", "indexer_scores" },
  { "indexer_scores.lua", "max(dots[i], 0.0)", "dots[i]", "indexer_scores" },
  { "indexer_scores.lua", "live:select(page:get(), 0)", "(live:select(page:get(), 0) & 0xfffff)",
    "indexer_scores" },
  { "indexer_topk.lua", "score:eq(score):select(key, 0)", "key", "indexer_topk" },
  { "indexer_topk.lua", "tied:set(tied:get() + (sum >> 16))", "tied:set(tied:get())", "indexer_topk" },
  { "indexer_topk.lua", "return { pointer = array:at(start // SECTOR * SECTOR), skew = skew:to(u32)",
    "return { pointer = array:at(start // SECTOR * SECTOR), skew = (skew & 6):to(u32)", "indexer_topk" },
}

tap.plan(#variants + 6 + #faults)

for _, v in ipairs(variants) do
  spec(v[1], v[2])
  local status, output = build(v[1], v[1])
  if status ~= 0 then
    tap.ok(false, v[1] .. ": builds")
    tap.note(output)
  else
    passes(v[1], v[1])
  end
end

passes("ds-mla", "other numbers, another order of blocks and warps", "KVF_EXECUTOR_SEED=5", "--seed 7")
passes("two-plane", "and once more", "KVF_EXECUTOR_SEED=77", "--seed 8")

-- Chips before sm_90 add eight products at once.
spec("sm-80", { ['"sm_90"'] = '"sm_80"', ['window_mode = "ring"'] = 'window_mode = "paged"' })
local built, output = build("sm-80", "sm-80")
assert(built == 0, output)
passes("sm-80", "sm_80", "KVF_EXECUTOR_CAPABILITY=8.0")

-- Rows so long that a chip with less shared memory has room for one tile of them only, or for none.
spec("long", { ['"sm_90"'] = '"sm_89"', ['window_mode = "ring"'] = 'window_mode = "paged"',
               ["head_dim = 128"] = "head_dim = 1024", ['format = "fp8_token"'] = 'format = "bf16"' })
built, output = build("long", "long")
assert(built == 0, output)
local wrong, many = verify("long", "attn", "KVF_EXECUTOR_CAPABILITY=8.9")
tap.is(#wrong, 0, "one tile of long rows: equal to the references (" .. many .. " cases)")
spec("long", { ['"sm_90"'] = '"sm_89"', ['window_mode = "ring"'] = 'window_mode = "paged"',
               ["head_dim = 128"] = "head_dim = 1024" })
built, output = build("long", "long")
tap.ok(built ~= 0 and output:find("need %d+ bytes of shared memory, more than a block has"),
  "no tile of long rows: refused")
built = build("long", "long", "--target sm_90")
tap.is(built, 0, "but not for a chip that has room")

for _, fault in ipairs(faults) do
  local templates = dir .. "/templates"
  shell.run(("rm -rf %s && cp -r templates %s"):format(templates, templates))
  local source = shell.read(templates .. "/" .. fault[1])
  local first, last = source:find(fault[2], 1, true)
  assert(first, fault[1] .. " has no " .. fault[2])
  shell.write(templates .. "/" .. fault[1], source:sub(1, first - 1) .. fault[3] .. source:sub(last + 1))
  local status, text = build(fault[5] or "token", "faulty", "--templates " .. templates)
  local failed = status == 0 and verify("faulty", fault[4]) or {}
  if not tap.ok(#failed > 0, ("%s: %s is found"):format(fault[1], fault[3])) then tap.note(text) end
end

shell.clean()
tap.done()
