#!/usr/bin/env lua5.4
-- What `make test-gpu` and `make bench-gpu` do on a real GPU, in TAP. With GPU_DRIVER=executor everything
-- runs through on the executor, slowly: for trying the script itself.
--
--     bench/gpu.lua test|bench      from the root of the source tree, after `make`
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local driver = os.getenv("GPU_DRIVER") or "cuda"
local mode = arg[1]
local dir = shell.directory()

-- Run a command of kvforge-run and note what it says of the device, once.
local said, environment = {}, ""
local function run(command, arguments, on)
  local status, output = shell.run(("%s%s %s --driver %s %s"):format(environment, shell.kvforge_run, command,
    on or driver, arguments))
  local device = output:match("# device: ([^\n]+)")
  if device and not said[device] then
    said[device] = true
    tap.note(device)
    tap.note(output:match("# driver: ([^\n]+)"))
  end
  return status, output
end

local function bundle(name) return dir .. "/" .. name end

local function build(name, target)
  return shell.run(("%s build examples/%s.lua -o %s%s"):format(shell.kvforge, name, bundle(name),
    target and " --target " .. target or ""))
end

-- The device's compute capability times ten, or nil and why there is none.
local function find_device()
  local status, output = build("tiny", "sm_80")
  if status ~= 0 then return nil, output end
  output = select(2, run("verify", "--kernel state_reset " .. bundle("tiny")))
  local major, minor = output:match("compute capability (%d+)%.(%d+)")
  if not major then return nil, output:match("kvforge%-run: ([^\n]+)") or output end
  return 10 * major + minor
end

-- The target to build for. Those ending in "a" run on exactly their chip, the others on later ones too.
local function find_target(capability)
  if capability == 100 or capability == 120 then return ("sm_%da"):format(capability) end
  for _, number in ipairs { 90, 89, 80 } do
    if number <= capability then return "sm_" .. number end
  end
end

-- The last lines of an output, as notes.
local function note_end(output)
  local lines = {}
  for line in output:gmatch("[^\n]+") do lines[#lines + 1] = line end
  for i = math.max(1, #lines - 15), #lines do tap.note(lines[i]) end
end

local function step(name, status, output)
  local summary = output:match("# (%d+ cases, [^\n]+)") or ""
  tap.ok(status == 0, name .. (summary ~= "" and ": " .. summary or ""))
  if status ~= 0 then note_end(output) end
  io.stdout:flush()
end

local function test(target)
  local models = { "tiny", "flash-narrow", "deepseek-v4-flash", "deepseek-v4-pro", "deepseek-v4-flash-ring" }
  for _, name in ipairs(models) do
    local status, output = build(name, target)
    if status == 0 then status, output = run("verify", bundle(name)) end
    step("verify " .. name, status, output)
  end
  step("demo deepseek-v4-flash-ring", run("demo", bundle(models[5])))
  local narrow, record = bundle("flash-narrow"), dir .. "/outputs"
  step("decode flash-narrow", run("decode", narrow))
  step("decode --flash deepseek-v4-flash", run("decode", "--flash " .. bundle("deepseek-v4-flash")))
  -- The executor as this chip: what it computes must be what the chip computes, bit for bit.
  local options = ("--quick %%s %s %s"):format(record, narrow)
  step("decode flash-narrow on the executor", run("decode", options:format("--record"), "executor"))
  step("decode flash-narrow, the executor's bits", run("decode", options:format("--against")))
end

local function bench(target)
  local options = os.getenv("GPU_BENCH") or ""
  for _, name in ipairs { "deepseek-v4-flash", "deepseek-v4-pro" } do
    local status, output = build(name, target)
    if status == 0 then
      status, output = run("bench", ("%s --json %s/%s.bench.json %s"):format(options, shell.build, name,
        bundle(name)))
    end
    print(output)
    step(("bench %s, kept in %s/%s.bench.json"):format(name, shell.build, name), status, output)
  end
  if not shell.find("nvcc") then return tap.skip(1, "no nvcc: no CUDA C to compare with") end
  local status, output = shell.run(("%sKVF_BUILD=%s %s/bench/twins --driver %s --arch %s"):format(environment,
    shell.build, shell.build, driver, target))
  print(output)
  step("every kernel beside CUDA C", status, output)
end

local modes = { test = { run = test, plan = 10 }, bench = { run = bench, plan = 3 } }
if not modes[mode] then
  io.stderr:write("usage: bench/gpu.lua test|bench\n")
  os.exit(2)
end
local capability, why = find_device()
if not capability then
  shell.clean()
  -- Whatever else is wrong with a driver that is there is a failure.
  if why:find("no driver", 1, true) or why:find("CUDA_ERROR_NO_DEVICE", 1, true) then tap.skip_all(why) end
  print("1..1\nnot ok 1 - the GPU can be used")
  tap.note(why)
  os.exit(1)
end
local target = find_target(capability)
if not target then
  shell.clean()
  tap.skip_all(("no target for compute capability %d.%d"):format(capability // 10, capability % 10))
end
-- The executor plays the same chip.
environment = ("KVF_EXECUTOR_CAPABILITY=%d.%d "):format(capability // 10, capability % 10)
tap.plan(modes[mode].plan)
tap.note("modules for " .. target)
modes[mode].run(target)
shell.clean()
tap.done()
