#!/usr/bin/env lua5.4
-- The README's table of kernels, in Markdown: job from the template, parameters and formats from the bundle's
-- manifest, counters from `kvforge-run profile`.
--     bench/kernel_table.lua [SPEC]      from the root of the source tree
-- Without SPEC: DeepSeek-V4-Flash. `make tables` puts it into the README.
package.path = "tests/?.lua;lua/?.lua;" .. package.path
local shell = require "shell"
local json = require "kvforge.json"

local spec = arg[1] or "examples/deepseek-v4-flash.lua"

local function must(command)
  local status, output = shell.run(command)
  if status ~= 0 then
    io.stderr:write(output)
    shell.clean()
    os.exit(1)
  end
  return output
end

-- ---- what there is to say ----

-- A kernel's job stands in its template, whose name the kernel's contains: swa_write_workspace is of
-- swa_write.
local function read_jobs()
  local jobs = {}
  for path in must("ls templates/*.lua"):gmatch("[^\n]+") do
    jobs[path:match("([%w_]+)%.lua$")] = shell.read(path):match('\n%s+job = "([^"]+)"')
  end
  return function(kernel)
    local best
    for name in pairs(jobs) do
      if kernel:find(name, 1, true) and (not best or #name > #best) then best = name end
    end
    return jobs[best]
  end
end

-- Parameters that go together under one word; what is not here goes by its own name.
local words = {
  { "^batch_id$", "batch" }, { "^position$", "batch" }, { "^cu_tokens$", "batch" },
  { "^state_slot$", "batch" }, { "^write_from$", "batch" },
  { "^block_table$", "tables" }, { "^window_table$", "tables" },
  { "^ws_swa_", "workspace rows" }, { "^swa_pos$", "ring state" }, { "^swa_head$", "ring state" },
  { "^swa_", "window rows" }, { "^kv_%w+$", "entries" }, { "^index_%w+$", "index entries" },
  { "tail_len$", "tail_len" }, { "tail_[kz][ab]$", "tails" }, { "^part_%w$", "parts" },
}

local function word_of(name)
  for _, entry in ipairs(words) do
    if name:find(entry[1]) then return entry[2] end
  end
  return name
end

local function parameters(kernel)
  local lists = { { seen = {} }, { seen = {} } }
  for _, p in ipairs(kernel.params) do
    local word = word_of(p.name)
    local list = lists[p.direction == "in" and 1 or 2]
    if p.type == "ptr" and not list.seen[word] then
      list.seen[word] = true
      list[#list + 1] = word
    end
  end
  return table.concat(lists[1], ", ") .. " → " .. table.concat(lists[2], ", ")
end

-- Rows as any format has them, or the types of its numbers.
local function formats(kernel)
  local seen, list = {}, {}
  local function add(word)
    if not seen[word] then seen[word] = true; list[#list + 1] = word end
  end
  for _, p in ipairs(kernel.params) do
    local word = p.type == "ptr" and word_of(p.name)
    if word == "window rows" or word == "entries" or word == "workspace rows" then add "latent"
    elseif word == "index entries" then add "index"
    elseif word and p.dtype ~= "i32" then add(p.dtype == "u8" and "bytes" or p.dtype) end
  end
  if #list == 0 then list[1] = "i32" end
  return table.concat(list, ", ")
end

-- ---- counters: of the first layer type that has the kernel; the worst of all types where it says so ----

local BATCHES = { "decode", "prefill" }

local function short(number)
  return number >= 1000 and ("%.0f"):format(number) or ("%.3g"):format(number)
end

-- One cell: `text` of both batches' counters, once if both say the same.
local function both(counted, text)
  local cells = {}
  for _, batch in ipairs(BATCHES) do
    local cell = counted[batch] and text(counted[batch])
    if cell and cell ~= cells[#cells] then cells[#cells + 1] = cell end
  end
  return table.concat(cells, "; ")
end

local function worst(list, value)
  local most = 0
  for _, k in ipairs(list) do most = math.max(most, value(k)) end
  return most
end

local function cells(counted)
  return {
    both(counted, function(list)
      return short(list[1].warp_instructions / list[1].units) .. " per " .. list[1].unit
    end),
    both(counted, function(list)
      return ("%.2f"):format(worst(list, function(k) return k.sectors_moved / k.sectors_needed end))
    end),
    both(counted, function(list) return short(worst(list, function(k) return k.bank_conflicts end)) end),
    both(counted, function(list)
      local k = list[1]
      if k.tensor_macs == 0 then return "" end
      return ("%s per %s; %.1f instructions per 1024"):format(short(k.tensor_macs / k.units), k.unit,
        1024 * k.warp_instructions / k.tensor_macs)
    end),
  }
end

-- ---- the table ----

local dir = shell.directory()
must(("%s build %s -o %s/bundle"):format(shell.kvforge, spec, dir))
must(("%s profile --json %s/profile.json %s/bundle"):format(shell.kvforge_run, dir, dir))
local manifest = json.decode(shell.read(dir .. "/bundle/manifest.json"))
local counters = json.decode(shell.read(dir .. "/profile.json"))
shell.clean()

local kernels, order = {}, {}
for _, module in ipairs(manifest.modules) do
  for _, kernel in ipairs(module.kernels) do
    local k = kernels[kernel.name]
    if not k then
      k = { kernel = kernel, types = {}, counted = {} }
      kernels[kernel.name] = k
      order[#order + 1] = kernel.name
    end
    k.types[#k.types + 1] = module.type
    for _, c in ipairs(counters) do
      if c.kernel == kernel.entry then
        k.counted[c.load] = k.counted[c.load] or {}
        table.insert(k.counted[c.load], c)
      end
    end
  end
end
table.sort(order)

local job_of = read_jobs()
local lines = {
  "| kernel | job | parameters | formats | warp instructions | moved/needed | conflicts | MACs |",
  "|---|---|---|---|---|---|---|---|",
}
for _, name in ipairs(order) do
  local k = kernels[name]
  local row = { "`" .. name .. "`", job_of(name), parameters(k.kernel), formats(k.kernel) }
  table.move(cells(k.counted), 1, 4, #row + 1, row)
  lines[#lines + 1] = "| " .. table.concat(row, " | ") .. " |"
end
io.write(table.concat(lines, "\n"), "\n")
