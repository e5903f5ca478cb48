#!/usr/bin/env lua5.4
-- The tables of docs/pool.md: `elastic` against `static` swept over eight window shares, at equal total
-- bytes, on a trace (if its file is given or found) and on generated loads.
--   bench/pool_table.lua [--real] [--trace FILE] [LOAD...]
-- --real keeps snapshots and the whole request state; without it, the assumptions of the simulation.
local build = os.getenv("KVF_BUILD") or "build"
local trace, real, only = "../shared/traces/conversation_4000.jsonl", false, {}
local i = 1
while arg[i] do
  if arg[i] == "--real" then real = true
  elseif arg[i] == "--trace" then i = i + 1; trace = arg[i]
  else only[#only + 1] = arg[i] end
  i = i + 1
end

local shares = { .03, .06, .12, .20, .35, .50, .65, .80 }
local loads = {
  { "trace, closed queue", "--trace " .. trace, { 16, 32, 80 } },
  { "trace, by arrival", "--arrival --trace " .. trace, { 12, 20, 40 } },
  { "short", "--load short", { 2.4, 3.3, 3.8 } },
  { "mixed", "--load mixed", { 4, 6, 8 } },
  { "prefix", "--load prefix", { 2.4, 3.3, 3.8 } },
  { "agents", "--load agents", { 5, 8, 12 } },
  { "zipf", "--load zipf", { 3, 5, 8 } },
  { "phases", "--load phases", { 4, 8, 14 } },
}

local function replay(arguments)
  local command = ("%s/bench/pool_replay %s %s 2>&1"):format(build, arguments, real and "" or "--lean")
  local pipe = assert(io.popen(command))
  local text = pipe:read("a")
  pipe:close()
  local r = {
    hit = tonumber(text:match("hit rate%s+([%d.]+)")),
    wait = tonumber(text:match("steps waited%s+mean ([%d.]+)")),
    p99 = tonumber(text:match("p99 ([%d.]+)")),
    preempted = tonumber(text:match("preemptions%s+(%d+)")),
    rejected = tonumber(text:match("requests rejected%s+(%d+)")) or 0,
    steps = tonumber(text:match("\nsteps%s+(%d+)")),
    live = tonumber(text:match("live / reserved%s+([%d.]+)")),
    us = tonumber(text:match("allocator%s+([%d.]+)")),
    operations = tonumber(text:match("a step, (%d+)")),
  }
  if not r.hit or r.rejected > 0 then return nil end
  return r
end

local function wanted(name)
  if #only == 0 then return true end
  for _, n in ipairs(only) do if name:find(n, 1, true) then return true end end
  return false
end

print("|load, GB|best static hit / wait (share)|best static wait / hit (share)|elastic hit / wait|p99|"
  .. "preempted|steps|live|us a step|")
print("|-|-|-|-|-|-|-|-|-|")
for _, load in ipairs(loads) do
  local name, arguments, budgets = table.unpack(load)
  for _, gb in ipairs(wanted(name) and budgets or {}) do
    local by_hit, by_wait
    for _, share in ipairs(shares) do
      local r = replay(("%s --memory %g --policy static --windows %g"):format(arguments, gb, share))
      if r then
        r.share = share
        if not by_hit or r.hit > by_hit.hit then by_hit = r end
        if not by_wait or r.wait < by_wait.wait then by_wait = r end
      end
    end
    local e = replay(("%s --memory %g"):format(arguments, gb))
    local function cell(r, first, second)
      return r and ("%.3f / %.1f (%.2f)"):format(r[first], r[second], r.share) or "infeasible"
    end
    print(("|%s, %g|%s|%s|%s|%s|%s|%s|%s|%s|"):format(name, gb, cell(by_hit, "hit", "wait"),
      by_wait and ("%.1f / %.3f (%.2f)"):format(by_wait.wait, by_wait.hit, by_wait.share) or "infeasible",
      e and ("%.3f / %.1f"):format(e.hit, e.wait) or "rejected", e and e.p99 or "", e and e.preempted or "",
      e and e.steps or "", e and e.live or "", e and e.us or ""))
    io.stdout:flush()
  end
end
