#!/usr/bin/env lua5.4
-- The kernels of window and workspace on many windows: each against its reference, and all together
-- against a serving token by token; and that a fault in any of them breaks the latter.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) or not shell.read(executor):find("cuLaunchKernel", 1, true) then
  tap.skip_all("the executor has not been built")
end

local dir = shell.directory()
local KERNELS = { "swa_write_workspace", "workspace_fill", "row_lists_workspace" }

-- Replace fields of tiny; each must be there.
local function write_spec(name, fields)
  local text = shell.read("examples/tiny.lua")
  for field, value in pairs(fields) do
    local count
    text, count = text:gsub("([%s{])" .. field .. ' = [%w"_]+', "%1" .. field .. " = " .. value, 1)
    assert(count == 1, "tiny has no " .. field)
  end
  shell.write(("%s/%s.lua"):format(dir, name), text)
end

local function build(name, bundle, options)
  local status, output = shell.run(("%s build %s/%s.lua -o %s/%s %s"):format(shell.kvforge, dir, name,
    dir, bundle, options or ""))
  if status ~= 0 then tap.note(output) end
  return status == 0
end

local function verify(bundle, kernel, environment)
  return shell.run(("%s %s verify --driver executor --kernel %s %s/%s"):format(environment or "",
    shell.kvforge_run, kernel, dir, bundle))
end

local function count(text, pattern)
  local _, n = text:gsub(pattern, "")
  return n
end

local function failures(output)
  for line in output:gmatch("[^\n]+") do
    if not line:find("^ok ") then tap.note(line) end
  end
end

local specs = {
  { "ring", { } },
  { "ring-drafts", { window = 5, drafts = 64, format = '"fp8_ds_mla"' } }, -- longer than the window
  { "ring-plain", { window = 17, drafts = 0, format = '"bf16"' } },
  { "ring-odd", { window = 129, drafts = 1, format = '"fp8_two_plane"' } },
  { "paged", { window_mode = '"paged"' } },
  { "paged-blocks", { window_mode = '"paged"', window = 300, format = '"fp8_ds_mla"' } },
  { "paged-256", { window_mode = '"paged"', window = 128, block = 256, format = '"fp8_two_plane"' } },
  { "paged-drafts", { window_mode = '"paged"', window = 2, drafts = 30, format = '"bf16"' } },
}

local faults = {
  { "ring", "workspace_fill.lua", "T%.window %- 1%) | first", "T.window - 2) | first" },
  { "ring", "workspace_fill.lua", "ipairs%(T%.place%.window%.fields%)",
    "ipairs { T.place.window.fields[1] }" },
  { "ring", "swa_write.lua", "condition = const%(bool, true%)", "condition = kept" },
  { "ring", "row_lists.lua", "here %- %(position %- other%)", "here - (position - other) - 1" },
  { "ring", "lib/window.lua", "%(request %+ 1%) %* %(T%.window %- 1%)", "request * (T.window - 1)" },
  { "paged", "lib/window.lua", "position %% T%.model%.block", "position % (T.model.block - 1)" },
  { "paged", "row_lists.lua", "here %- %(position %- other%)", -- youngest first
    "here - (other - (position + 1 - imin(position + 1, T.window)))" },
}

tap.plan(#specs * (1 + #KERNELS) + 4 + #faults)

for _, spec in ipairs(specs) do
  local name = spec[1]
  write_spec(name, spec[2])
  tap.ok(build(name, name .. ".bundle"), name .. ": builds")
  for _, kernel in ipairs(KERNELS) do
    local status, text = verify(name .. ".bundle", kernel)
    -- Three types, three ways of serving.
    local whole = kernel ~= "workspace_fill" or count(text, "as token by token") == 9
    if not tap.ok(status == 0 and whole, name .. ": " .. kernel) then failures(text) end
  end
end

-- With a window of 1 there is nothing to fill.
write_spec("one", { window = 1, drafts = 0, format = '"bf16"' })
tap.ok(build("one", "one.bundle"), "a window of one token builds")
tap.ok(verify("one.bundle", "swa_write_workspace") == 0 and verify("one.bundle", "row_lists_workspace") == 0,
  "a window of one token: its kernels equal their references")
tap.ok(not shell.read(dir .. "/one.bundle/manifest.json"):find("workspace_fill", 1, true),
  "a window of one token has no workspace_fill")

local status, text = verify("ring.bundle", "workspace_fill", "KVF_EXECUTOR_SEED=7")
if not tap.ok(status == 0, "in another order of blocks and warps") then failures(text) end

-- A fault in writer, filler, lister or reader shows in what tokens see, whatever the references say.
for _, fault in ipairs(faults) do
  local name, file, from, to = table.unpack(fault)
  local changed = dir .. "/changed"
  shell.run(("rm -rf %s && cp -r templates %s"):format(changed, changed))
  local source, found = shell.read(changed .. "/" .. file):gsub(from, (to:gsub("%%", "%%%%")), 1)
  assert(found == 1, "the template has no " .. from)
  shell.write(changed .. "/" .. file, source)
  local built = build(name, "faulty.bundle", "--templates " .. changed)
  local verified, report = verify("faulty.bundle", "workspace_fill --type hca")
  tap.ok(built and verified == 1 and report:find("not ok[^\n]*as token by token"),
    ("%s: a fault in %s (%s) is found"):format(name, file, to))
end

shell.clean()
tap.done()
