-- The kernel language: what a template sees, and how a template becomes a kernel.
--
-- A template is a Lua file that returns kernel { name, job, block, grid, params, build, ... }:
--   common        true: of no layer type; the kernel goes to the module "common"
--   variants(T)   the kernels layer type T has of this template: an array of tables that name them
--                 (absent: one, named like the template; empty: none)
--   rules(T)      an array of { holds, "what T must be" }: shapes the template can build
--   params(T, variant)  an array made by the functions of kvforge.kernel_params
--   block         threads of a block
--   grid          up to three of per("param", n), constant(n) or n
--   build(T, p, variant)  emits the code; p holds the parameters by name
-- T is the layer type as docs/manifest.md describes it, with T.model and T.place besides.
local ir = require "ir"
local params = require "kvforge.kernel_params"
local place = require "kvforge.kernel_place"

local kernel = {}

-- ---- the names a template may use ----

local function static_assert(condition, message)
  if ir.is_value(condition) then error("assert is for build time, this is a register value", 2) end
  if not condition then error(message or "assertion failed", 2) end
  return condition
end

local vocabulary = {
  -- Lua itself
  assert = static_assert, error = error, ipairs = ipairs, select = select, tostring = tostring,
  type = type, math = math, string = string, table = table,
  -- values
  const = ir.const, is_value = ir.is_value, pack = ir.pack,
  min = ir.min, max = ir.max, abs = ir.abs, fma = ir.fma, sqrt = ir.sqrt, floor = ir.floor,
  imin = ir.imin, imax = ir.imax,
  -- where this thread stands
  block_id = ir.block_id, thread_id = ir.thread_id, lane_id = ir.lane_id, warp_id = ir.warp_id,
  -- control
  return_if = ir.return_if, when = ir.when, loop = ir.loop, loop_while = ir.loop_while,
  variable = ir.variable,
  -- together
  shuffle = ir.shuffle, shuffle_xor = ir.shuffle_xor, shuffle_up = ir.shuffle_up,
  ballot = ir.ballot, popcount = ir.popcount, atomic_add = ir.atomic_add,
  barrier = ir.barrier, warp_barrier = ir.warp_barrier,
  -- memory and instructions
  shared = ir.shared, dynamic_shared = ir.dynamic_shared,
  shared_limit = ir.shared_limit, asm = ir.asm, has = ir.has,
  rows = place.rows, several = place.several, array = place.array,
}

for name in ([[ bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 e4m3 e5m2 ue8m0
  e2m1x2 ]]):gmatch("%S+") do
  vocabulary[name] = name
end

for name, make in pairs(params.vocabulary) do vocabulary[name] = make end

function vocabulary.kernel(template)
  for _, field in ipairs { "name", "job", "block", "grid", "params", "build" } do
    if template[field] == nil then error("a template needs a field '" .. field .. "'", 2) end
  end
  return template
end

local environment_meta = {
  __index = function(_, name) error("no name '" .. tostring(name) .. "' in the kernel language", 2) end,
  __newindex = function(_, name) error("a template sets the global '" .. tostring(name) .. "'", 2) end,
}

-- The environment of a template's chunk; `extra` is what the guard needs, `load_lib` loads a file of lib/.
function kernel.environment(extra, load_lib)
  local env = {}
  for name, what in pairs(vocabulary) do env[name] = what end
  for name, what in pairs(extra) do env[name] = what end
  env.require = load_lib
  return setmetatable(env, environment_meta)
end

-- ---- from a template to a kernel ----

local function grid_rule(part)
  if type(part) == "number" then return { const = part } end
  return part
end

local function grid(template, T, variant)
  local parts = type(template.grid) == "function" and template.grid(T, variant) or template.grid
  local out = {}
  for axis = 1, 3 do out[axis] = grid_rule(parts[axis] or 1) end
  return out
end

-- The layer type that stands for all: module `common` holds the kernels that need none.
function kernel.common_type(M)
  return { name = "common", common = true, model = M.model, place = {}, state = {} }
end

-- The kernels a layer type has of a template.
function kernel.variants(template, T)
  if (template.common or false) ~= (T.common or false) then return {} end
  if not template.variants then return { { name = template.name } } end
  return template.variants(T)
end

-- What layer type T breaks of a template's shape rules, as an array of sentences.
function kernel.broken_rules(template, T)
  local broken = {}
  for _, rule in ipairs(template.rules and template.rules(T) or {}) do
    if not rule[1] then broken[#broken + 1] = ("kernel %s: %s"):format(template.name, rule[2]) end
  end
  return broken
end

-- Build one kernel into the open module; returns its entry in the manifest.
function kernel.build(template, T, variant)
  local broken = kernel.broken_rules(template, T)
  if #broken > 0 then error(("layer type '%s': %s"):format(T.name, broken[1]), 0) end
  local entry = ("kvf_%s_%s"):format(T.name, variant.name)
  local list = params.flatten(template.params(T, variant))
  local block = type(template.block) == "function" and template.block(T, variant) or template.block
  local values = ir.begin_kernel(entry, block, params.for_ir(list))
  setmetatable(values, {
    __index = function(_, name) error("the kernel has no parameter '" .. tostring(name) .. "'", 2) end,
  })
  template.build(T, values, variant)
  ir.end_kernel()
  local described, bytes = params.for_manifest(list)
  local shared = type(template.shared) == "function" and template.shared(T, variant) or template.shared or 0
  return {
    name = variant.name, entry = entry, params = described, params_bytes = bytes,
    grid = grid(template, T, variant), block = block, shared = shared,
  }
end

return kernel
