-- The text of manifest.json. Its words are defined in docs/manifest.md.
local json = require "kvforge.json"
local objects = require "kvforge.objects"

local FORMAT = 1

-- Stands for the checksum while it is being worked out.
local ZEROS = ("0"):rep(64)

local function module_objects(build)
  local modules = {}
  for i, module in ipairs(build.modules) do
    modules[i] = objects.pick(module, "type target file ptx driver kernels")
    modules[i].bytes = #module.text
    modules[i].sha256 = build.sha256(module.text)
    if module.cubin then
      modules[i].cubin = {
        file = module.cubin.file, bytes = #module.cubin.text, sha256 = build.sha256(module.cubin.text),
      }
    end
  end
  table.sort(modules, function(a, b)
    if a.type ~= b.type then return a.type < b.type end
    return a.target < b.target
  end)
  return modules
end

--[[
manifest(M, build) -> text, digest

M      the resolved model
build  version, llvm   texts
       sha256          function(text) -> hex digits
       modules         array of { type, target, file, text, ptx, driver, kernels }; the bytes and the
                       digest are taken from `text`, all else is written as it is
]]
return function(M, build)
  local root = objects.model(M)
  root.digest = build.sha256(json.encode(root))
  root.format, root.kvforge, root.llvm = FORMAT, build.version, build.llvm
  root.bytes, root.arena = M.bytes, M.arena
  root.modules = module_objects(build)
  root.checksum = ZEROS
  local text = json.encode(root) .. "\n"
  return text:gsub('("checksum": ")' .. ZEROS, "%1" .. build.sha256(text), 1), root.digest
end
