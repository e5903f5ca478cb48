-- The C header of a bundle: sizes and offsets, one parameter struct and one typed launch function
-- per kernel. It compiles as C17 and C++17 and checks itself against the manifest's numbers.
local identifier = require("kvforge.header_names").identifier

local c_types = {
  ptr = "kvf_address", i32 = "int32_t", u32 = "uint32_t", i64 = "int64_t", u64 = "uint64_t",
  f32 = "float",
}

local writer = {}
writer.__index = writer

function writer:line(text, ...)
  self.out[#self.out + 1] = select("#", ...) > 0 and text:format(...) or text
end

function writer:define(name, value)
  if self.defined[name:upper()] then
    self.clashes[#self.clashes + 1] = { type = self.type, name = self.upper .. "_" .. name:upper() }
  end
  self.defined[name:upper()] = true
  -- Beyond 31 bits a plain literal would change its type from place to place.
  local text = type(value) == "number" and value > 0x7fffffff and "UINT64_C(%s)" or "%s"
  self:line("#define %s_%s " .. text, self.upper, name:upper(), value)
end

-- Break a line at its spaces, so that none is longer than 100 columns where that is possible.
local function wrapped(text)
  local lines, line = {}, nil
  for word in text:gmatch("%S+") do
    if line and #line + 1 + #word > 100 then
      lines[#lines + 1] = line
      line = "    " .. word
    else
      line = line and line .. " " .. word or word
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

function writer:check(condition, text)
  self:line(wrapped(('%s_ASSERT(%s,'):format(self.upper, condition)) .. '\n    "' .. text .. '");')
end

-- ---- sizes and offsets ----

function writer:model(M, digest)
  self:line("/* ---- the model ---- */\n")
  self:define("name", '"' .. M.model.name .. '"')
  if digest then self:define("digest", '"' .. digest .. '"') end
  for _, name in ipairs { "heads", "block", "drafts", "max_positions" } do
    self:define(name, M.model[name])
  end
  self:define("types", #M.types)
  self:define("layers", #M.layers)
  self:define("draft_layers", #M.draft_layers)
  self:define("block_bytes", M.bytes.block)
  self:define("window_block_bytes", M.bytes.window_block)
  self:define("request_bytes", M.bytes.request)
end

function writer:place(prefix, place)
  local name = prefix .. place.name
  self:define(name .. "_rows", place.rows)
  self:define(name .. "_row_bytes", place.row_bytes)
  self:define(name .. "_page_bytes", place.page_bytes)
  for _, plane in ipairs(place.planes) do
    self:define(prefix .. plane.name .. "_page_bytes", plane.page_bytes)
  end
  for _, field in ipairs(place.fields) do
    self:define(("%s_%s_offset"):format(name, field.name), field.offset)
    self:define(("%s_%s_stride"):format(name, field.name), field.stride)
  end
end

-- Conditions that tie the numbers to each other, so that a damaged header does not compile.
function writer:place_checks(prefix, place, bits)
  local upper = function(name) return (self.upper .. "_" .. prefix .. name):upper() end
  local sum = {}
  for i, plane in ipairs(place.planes) do sum[i] = upper(plane.name) .. "_PAGE_BYTES" end
  self:check(("%s_PAGE_BYTES == %s"):format(upper(place.name), table.concat(sum, " + ")),
    "a page is its planes")
  for _, field in ipairs(place.fields) do
    local name = upper(place.name .. "_" .. field.name)
    self:check(("%s_OFFSET + (%s_ROWS - 1) * %s_STRIDE + %d <= %s_PAGE_BYTES"):format(name,
      upper(place.name), name, field.count * bits[field.dtype] // 8, upper(field.plane)),
      field.name .. " lies in its page")
  end
end

function writer:layer_type(T, bits)
  local prefix = T.name .. "_"
  self.type = T
  self:line("\n/* ---- layer type %s ---- */\n", T.name)
  for _, name in ipairs {
    "head_dim", "rope_dim", "nope_dim", "window", "ring", "ratio", "k", "layers", "draft_layers",
  } do
    self:define(prefix .. name, T[name])
  end
  if T.indexer then
    for _, name in ipairs { "heads", "dim", "topk" } do
      self:define(prefix .. "indexer_" .. name, T.indexer[name])
    end
  end
  for _, name in ipairs { "block", "row", "window_block", "request" } do
    self:define(prefix .. name .. "_bytes", T.bytes[name])
  end
  for _, place in ipairs(T.places) do self:place(prefix, place) end
  local request = {}
  for i, array in ipairs(T.state) do
    self:define(prefix .. "state_" .. array.name .. "_bytes", array.slot_bytes)
    request[i] = ("%s_%sSTATE_%s_BYTES"):format(self.upper, prefix:upper(), array.name:upper())
  end
  for _, place in ipairs(T.places) do self:place_checks(prefix, place, bits) end
  if #request > 0 then
    self:check(("%s_%sREQUEST_BYTES == %s"):format(self.upper, prefix:upper(),
      table.concat(request, " + ")), "a request is its arrays")
  end
end

-- ---- kernels ----

local function parameter_comment(param)
  if param.type ~= "ptr" then return "" end
  local shape = param.shape or ""
  if not shape:find("^%[") then shape = " " .. shape end
  local what = ((param.dtype or "") .. shape):gsub("%*/", "* /")
  local align = param.align and (", aligned to %d"):format(param.align) or ""
  return (" /* %s: %s%s */"):format(param.direction, what, align)
end

function writer:params_struct(kernel, struct)
  self:line("\nstruct %s {", struct)
  for _, param in ipairs(kernel.params) do
    local c_type = c_types[param.type] or error("header: no C type for " .. tostring(param.type))
    self:line("    %s %s;%s", c_type, identifier(param.name), parameter_comment(param))
  end
  self:line("};")
  for _, param in ipairs(kernel.params) do
    self:line("%s_PARAM(%s, %s, %d);", self.upper, struct, identifier(param.name), param.offset)
  end
  self:line("%s_PARAMS(%s, %d);", self.upper, struct, kernel.params_bytes)
end

function writer:launch(kernel, name, struct)
  self:line("\n/* Launch %s/%s on `stream`. See kvf_launch. */", kernel.type, kernel.name)
  self:line("static inline kvf_status %s_%s(", self.lower, name)
  self:line("    const %s_kernels *kernels, kvf_stream stream,", self.lower)
  self:line("    const struct %s *params, kvf_error *error)\n{", struct)
  self:line("    return kvf_launch(kernels->%s, stream, params, %d, error);\n}", name,
    kernel.params_bytes)
end

-- Every kernel once, however many targets it was built for, in order of type and name.
local function kernels_of(modules)
  local kernels, seen = {}, {}
  for _, module in ipairs(modules) do
    for _, kernel in ipairs(module.kernels) do
      local key = module.type .. "/" .. kernel.name
      if not seen[key] then
        seen[key] = true
        kernels[#kernels + 1] = {
          type = module.type, name = kernel.name, params = kernel.params,
          params_bytes = kernel.params_bytes,
        }
      end
    end
  end
  table.sort(kernels, function(a, b)
    if a.type ~= b.type then return a.type < b.type end
    return a.name < b.name
  end)
  return kernels
end

function writer:kernels(modules)
  local kernels, names = kernels_of(modules), {}
  if #kernels == 0 then return end
  self:line("\n/* ---- kernels: fill the table once, then launch ---- */\n")
  self:line("typedef struct %s_kernels {", self.lower)
  for i, kernel in ipairs(kernels) do
    names[i] = identifier(kernel.type .. "_" .. kernel.name)
    if names[names[i]] then error("header: two kernels are called " .. names[i]) end
    names[names[i]] = true
    self:line("    const kvf_kernel *%s;", names[i])
  end
  self:line("} %s_kernels;\n", self.lower)
  self:line("#define %s_PARAM(type, name, offset) \\", self.upper)
  self:line('    %s_ASSERT(offsetof(struct type, name) == offset, #name " lies elsewhere")', self.upper)
  self:line("/* A struct may end in padding that the kernel does not know. */")
  self:line("#define %s_PARAMS(type, bytes) \\", self.upper)
  self:line("    %s_ASSERT((sizeof(struct type) + 7) / 8 == (bytes + 7) / 8, \\", self.upper)
  self:line('        #type " is too small or large")\n')
  self:line("/* Look every kernel up in a loaded library. On an error the table is half filled. */")
  self:line("static inline kvf_status %s_find(const kvf_library *library,", self.lower)
  self:line("    %s_kernels *out, kvf_error *error)\n{\n    kvf_status status = KVF_OK;", self.lower)
  for i, kernel in ipairs(kernels) do
    self:line("    if (status == KVF_OK)")
    self:line('        status = kvf_library_kernel(library, "%s", "%s",', kernel.type, kernel.name)
    self:line("            &out->%s, error);", names[i])
  end
  self:line("    return status;\n}")
  for i, kernel in ipairs(kernels) do
    local struct = ("kvf_%s_%s_params"):format(self.lower, names[i])
    self:params_struct(kernel, struct)
    self:launch(kernel, names[i], struct)
  end
  self:line("\n#undef %s_PARAM\n#undef %s_PARAMS", self.upper, self.upper)
end

--[[
header(M, modules, digest) -> the text of <model>.h, clashes

M        the resolved model
modules  as in the manifest: array of { type, kernels = { { name, params, params_bytes } } }
digest   the manifest's, so that a program can tell whether a bundle is the one it was compiled for;
         may be left out
clashes  array of { type = T, name }: macros that T's numbers would get after another's
]]
return function(M, modules, digest)
  local bits = require("kvforge.layout").formats.bits
  local lower = identifier(M.model.name:lower())
  local self = setmetatable({
    out = {}, defined = {}, clashes = {}, lower = lower, upper = lower:upper(),
  }, writer)
  self:line("/* Sizes, offsets and kernels of %s. Written by kvforge; all sizes are bytes. */",
    M.model.name)
  self:line("#ifndef KVF_%s_H\n#define KVF_%s_H\n", self.upper, self.upper)
  self:line("#include <stddef.h>\n#include <stdint.h>\n\n#include <kvforge.h>\n")
  self:line("#ifdef __cplusplus\n#define %s_ASSERT static_assert", self.upper)
  self:line("#else\n#define %s_ASSERT _Static_assert\n#endif\n", self.upper)
  self:model(M, digest)
  for _, T in ipairs(M.types) do self:layer_type(T, bits) end
  self:kernels(modules)
  self:line("\n/* The bundle, for kvf_bundle_open_memory: defined in the file that --embed writes. */\n")
  self:line('#ifdef __cplusplus\nextern "C" {\n#endif')
  self:line("extern const kvf_file %s_files[];\nextern const uint32_t %s_file_count;", lower, lower)
  self:line("#ifdef __cplusplus\n}\n#endif")
  self:line("\n#undef %s_ASSERT\n\n#endif", self.upper)
  return table.concat(self.out, "\n") .. "\n", self.clashes
end
