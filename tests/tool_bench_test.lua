#!/usr/bin/env lua5.4
-- kvforge-run bench on the executor: everything but the times themselves; and the scripts for a GPU without one.
package.path = "tests/?.lua;lua/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"
local json = require "kvforge.json"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) then tap.skip_all("the executor has not been built") end

tap.plan(26)
local dir = shell.directory()
local bundle = dir .. "/tiny"
shell.run(("%s build examples/tiny.lua -o %s"):format(shell.kvforge, bundle))

local function bench(options)
  return shell.run(("%s bench --driver executor %s %s"):format(shell.kvforge_run, options, bundle))
end

-- ---- what it says ----

local status, output = bench("--launches 3 --json " .. dir .. "/bench.json")
tap.is(status, 0, "bench runs on the executor")
if status ~= 0 then tap.note(output) end
tap.contains(output, "times mean nothing", "and says what its times are worth there")
tap.contains(output, "medians of 3 samples", "with the samples asked for")
local result = json.decode(shell.read(dir .. "/bench.json"))
tap.is(result.times_mean_something, false, "the JSON says so too")
tap.ok(result.copy_bytes_per_second > 0 and result.mma_macs_per_second > 0, "both rates were measured")
tap.ok(result.device:find("executor", 1, true) and result.driver_version > 0 and result.date:find("^%d+%-%d+%-%d+$"),
  "device, driver and date")

-- ---- what the kernels need is what profile counts ----

shell.run(("%s profile --json %s/profile.json %s"):format(shell.kvforge_run, dir, bundle))
local counted, kernels = {}, 0
for _, k in ipairs(json.decode(shell.read(dir .. "/profile.json"))) do
  counted[k.kernel .. k.load] = k
  kernels = kernels + 1
end
local function number(value) return type(value) == "number" and value or 0 end -- or null
local same, products, timed = true, 0, 0
for _, k in ipairs(result.kernels) do
  local c = counted[k.kernel .. k.load]
  same = same and c and c.units == k.units and 32 * c.sectors_needed == k.bytes_needed
    and c.tensor_macs == number(k.macs)
  if number(k.macs) > 0 then products = products + 1 end
  if number(k.seconds) > 0 then timed = timed + 1 end
end
tap.is(#result.kernels, kernels, "every launch of the profile is there")
tap.ok(same, "with the bytes and multiply-adds that profile counts")
tap.ok(products > 1, "attention and the indexer multiply")
tap.is(timed, kernels, "every time is above nothing")

status, output = bench("--requests 2 --type csa --kernel attn,swa_write --json " .. dir .. "/few.json")
tap.is(status, 0, "two requests, two kernels of one type")
if status ~= 0 then tap.note(output) end
local few = json.decode(shell.read(dir .. "/few.json")).kernels
tap.is(#few, 3, "attn, and swa_write of both batches")
local attn = few[1].kernel:find("attn") and few[1] or few[#few]
local whole = counted[attn.kernel .. attn.load]
tap.is(attn.macs * whole.units, whole.tensor_macs * attn.units, "what is needed grows with the batch")

-- ---- the products' own PTX: the executor may take what a real driver does not ----

local ptxas = shell.find("ptxas")
if ptxas then
  local ptx = shell.read(shell.kvforge_run):match("%.version [%d.]+\n%.target sm_80\n.-\n}\n")
  shell.write(dir .. "/mma.ptx", ptx or "none")
  for _, chip in ipairs { "sm_80", "sm_90", "sm_100" } do
    status, output = shell.run(("%s -arch=%s %s/mma.ptx -o %s/mma.cubin"):format(ptxas, chip, dir, dir))
    tap.is(status, 0, "ptxas takes it for " .. chip)
    if status ~= 0 then tap.note(output:sub(1, 500)) end
  end
else
  tap.skip(3, "no ptxas here")
end

-- ---- wrong usage ----

for _, options in ipairs { "--launches 0", "--launches 1001", "--requests 0", "--requests 513", "--requests x" } do
  tap.is((bench(options)), 2, options .. " is wrong usage")
end
status, output = bench("--kernel nothing")
tap.ok(status == 1 and output:find("no such kernel", 1, true), "an unknown kernel is said")
status, output = bench("--kernel swa_write --json " .. dir .. "/none/x.json")
tap.ok(status == 1 and output:find("cannot write", 1, true), "so is a file that cannot be written")

-- ---- the scripts for a GPU, without one ----

local function gpu(environment, mode)
  return shell.run(("%s GPU_DRIVER=executor bench/gpu.lua %s"):format(environment, mode))
end
status, output = gpu("KVF_EXECUTOR_DEVICES=0", "test")
tap.ok(status == 0 and output:find("^1%.%.0 # SKIP .*no CUDA device"), "no device: skipped, and why")
status, output = gpu("KVF_EXECUTOR_SEED=x", "bench")
tap.ok(status == 1 and output:find("not ok 1", 1, true), "a driver that does not start is no reason to skip")
tap.is((gpu("", "nothing")), 2, "an unknown mode is wrong usage")
shell.clean()
tap.done()
