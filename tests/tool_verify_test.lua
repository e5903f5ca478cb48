#!/usr/bin/env lua5.4
-- Every kernel of many geometries on the executor against its reference, in several schedules; and
-- that a fault in a template is found.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) or not shell.read(executor):find("cuLaunchKernel", 1, true) then
  tap.skip_all("the executor has not been built")
end

local dir = shell.directory()

-- tiny with other fields of the model, whose own are taken out, and another row format.
-- Windows lie in rings unless the fields say otherwise.
local function variant(name, model, format, index)
  local text = shell.read("examples/tiny.lua")
  if not model:find("window_mode", 1, true) then model = model .. ' window_mode = "ring",' end
  for field in ('name = "",' .. model):gmatch("([%w_]+) =") do
    text = text:gsub("([%s{])" .. field .. ' = [%w"_]+,', "%1", 1)
  end
  text = text:gsub("return kv.model {", ('return kv.model { name = "%s", %s'):format(name, model), 1)
  local formatted, count = text:gsub('(window = 16, format = )"[%w_]+"', '%1"' .. format .. '"', 1)
  assert(count == 1, "the example's latent rows have another form")
  formatted = formatted:gsub('"fp8_index"', '"' .. (index or "fp8_index") .. '"')
  shell.write(dir .. "/" .. name .. ".lua", formatted)
end

local variants = {
  { "token", "", "fp8_token" },
  { "bf16", "", "bf16" },
  { "bf16-plain", "kv_norm = false,", "bf16" },
  { "token-plain", "kv_norm = false, round_before_rope = false,", "fp8_token" },
  { "bf16-f32", 'input_dtype = "f32", kv_norm = false,', "bf16" },
  { "token-f32", 'input_dtype = "f32", state_dtype = "bf16", round_before_rope = false,', "fp8_token" },
  { "ds-mla", 'state_dtype = "bf16", ape_on_write = false,', "fp8_ds_mla" },
  { "ds-mla-plain", "kv_norm = false, page_align = 576,", "fp8_ds_mla" },
  { "two-plane", "round_before_norm = false, hadamard = false,", "fp8_two_plane" },
  { "two-plane-plain", "kv_norm = false, drafts = 5,", "fp8_two_plane", "fp4_index" },
  { "fp4", "", "fp8_token", "fp4_index" },
  { "fp4-plain", "hadamard = false, page_align = 576,", "bf16", "fp4_index" },
  { "paged", 'window_mode = "paged",', "fp8_ds_mla" },
  { "paged-bf16", 'window_mode = "paged", state_dtype = "bf16",', "bf16" },
  { "online", "online = true, drafts = 0,", "fp8_ds_mla" },
  { "online-256", 'online = true, drafts = 0, window_mode = "paged", block = 256, input_dtype = "f32",', "bf16" },
  { "packed", 'window_mode = "paged", packed_lists = true,', "fp8_two_plane" },
  { "paged-256", 'window_mode = "paged", block = 256, page_align = 576,', "fp8_ds_mla" },
}

-- Attention, the indexer and the workspace have tests of their own.
local kernels = "swa_write,state_reset,tail_append,index_tail_append,compress,index_compress,"
  .. "row_lists,translate_pack,q_norm_rope,inverse_rope,rows_copy"

-- The last line of a run says how many cases there were.
local function verify(name, options, environment)
  local command = ("%s %s verify --driver executor %s %s/%s.bundle"):format(
    environment or "", shell.kvforge_run, options or "", dir, name)
  local status, output = shell.run(command)
  return status, output, tonumber(output:match("# (%d+) cases, 0 failed") or 0)
end

local packed_kernels = "row_lists_packed,row_lists_packed_prefill,translate_pack_packed"

local function failures(output)
  local lines = {}
  for line in output:gmatch("[^\n]+") do
    if not line:find("^ok ") and #lines < 20 then lines[#lines + 1] = line end
  end
  return table.concat(lines, "\n")
end

tap.plan(3 * #variants + 12 + 19)

for _, v in ipairs(variants) do
  variant(v[1], v[2], v[3], v[4])
  local status, output = shell.run(("%s build %s/%s.lua -o %s/%s.bundle"):format(shell.kvforge, dir,
    v[1], dir, v[1]))
  if not tap.is(status, 0, v[1] .. ": builds") then tap.note(output) end
  local packs = v[1] == "packed" and "," .. packed_kernels or ""
  local verified, text, cases = verify(v[1], "--kernel " .. kernels .. packs)
  local _, described = shell.run(("%s info %s/%s.bundle"):format(shell.kvforge_run, dir, v[1]))
  local where = v[2]:find("paged", 1, true) and "pages" or "rings"
  tap.ok(described:find(v[3] .. "\n", 1, true) and described:find("window in " .. where, 1, true),
    v[1] .. ": has the rows and the window that it names")
  if not tap.ok(verified == 0 and cases > 60, v[1] .. ": every kernel equals its reference") then
    tap.note(failures(text))
  end
end

-- Targets whose chips cannot convert to e4m3: integer code gives the same bits.
for _, name in ipairs { "token", "two-plane-plain" } do
  shell.run(("%s build %s/%s.lua -o %s/targets.bundle --target sm_80 --target sm_89"):format(shell.kvforge,
    dir, name, dir))
  for _, target in ipairs { "sm_80", "sm_89" } do
    for _, kernel in ipairs { "swa_write", "compress", "index_compress" } do
      local status, text, cases = verify("targets", ("--target %s --kernel %s"):format(target, kernel))
      local good = status == 0 and cases > 20
      if not tap.ok(good, ("%s: %s on %s"):format(name, kernel, target)) then tap.note(failures(text)) end
    end
  end
end

-- Other inputs, other orders of blocks and warps, one kernel alone.
for _, options in ipairs { "--seed 7 --kernel " .. kernels, "--kernel swa_write,compress --type csa,hca" } do
  local status, text, cases = verify("token", options)
  if not tap.ok(status == 0 and cases > 10, "verify " .. options) then tap.note(failures(text)) end
end
local orders, said = verify("bf16", "--kernel compress --schedules 16")
local _, equal = said:gsub("# %d+ cases, 0 failed", "")
if not tap.ok(orders == 0 and equal == 16, "16 orders give the same bits") then tap.note(said) end
tap.contains(said, "ok 16 - order 15", "each is reported")
orders, said = verify("bf16", "--kernel nonsense --schedules 2")
tap.ok(orders == 1 and said:find("not ok 2", 1, true), "orders in which nothing ran are failures")
local status, text = verify("token", "--kernel nonsense")
tap.ok(status == 1 and text:find("nothing was executed", 1, true), "a run without a kernel is a failure")
tap.contains(text, 'no kernel "nonsense"; it has', "which says what kernels there are")
status, text = verify("token", "--type nonsense")
tap.ok(status == 1 and text:find('no layer type "nonsense"; it has common, csa, hca, swa\n', 1, true),
  "and what layer types")

-- The bundle of a template with a fault.
local function faulty(file, from, to, kernel, base)
  local changed = dir .. "/changed"
  shell.run(("rm -rf %s && cp -r templates %s"):format(changed, changed))
  local source, count = shell.read(changed .. "/" .. file):gsub(from, to, 1)
  assert(count == 1, "the template has no " .. from)
  shell.write(changed .. "/" .. file, source)
  local built, output = shell.run(("%s build %s/%s.lua -o %s/faulty.bundle --templates %s"):format(
    shell.kvforge, dir, base or "token", dir, changed))
  if built ~= 0 then return tap.ok(false, output) end
  local verified, report = verify("faulty", "--kernel " .. kernel)
  tap.ok(verified == 1 and report:find("not ok", 1, true), ("a fault in %s is found"):format(file))
end

faulty("swa_write.lua", "%(position %+ 1%) %% T%.ring", "(position + 2) %% T.ring", "swa_write")
faulty("lib/fp8.lua", "LARGEST = 448%.0", "LARGEST = 440.0", "swa_write")
faulty("state_reset.lua", "or a%.init", "or 0", "state_reset")
faulty("compress.lua", "ape_on_write = T%.model%.state_dtype", "ape_on_write = bf16", "compress")
faulty("lib/running.lua", "imax%(start, g%.first_token%)", "start", "tail_append", "online")
faulty("lib/running.lua", "before %+ now %* values", "before + values", "compress", "online")
faulty("lib/fp4.lua", "0x1fffff", "0x200000", "index_compress", "two-plane-plain")
faulty("tail_append.lua", "%(position %+ 1%) %% T%.ratio", "(position + 2) %% T.ratio", "tail_append")
-- Heads and tails of slices: where the published kernels once mixed them up.
faulty("row_lists_packed.lua", "variant%.prefill and not T%.indexer", "variant.prefill and T.indexer",
  "row_lists_packed_prefill", "packed")
faulty("translate_pack_packed.lua", "p%.rows:at%(first%)", "p.rows:at(first + length - room)", "translate_pack_packed",
  "packed")
faulty("row_lists_packed.lua", "%(position %+ 1%) // T%.ratio", "(position + T.ratio) // T.ratio", "row_lists_packed",
  "packed")

shell.clean()
tap.done()
