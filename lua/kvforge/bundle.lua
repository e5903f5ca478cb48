-- The files of a bundle, in the order they are written.
local manifest = require "kvforge.manifest"
local header = require "kvforge.header"
local embed = require "kvforge.embed"

local function sorted(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--[[
bundle(M, build) -> array of { name, text }

build  what the manifest takes (version, llvm, sha256, modules), and
       ir     map from file name to LLVM IR, empty if it is not kept
       embed  true: also <model>.c with everything inside
]]
return function(M, build)
  local text, digest = manifest(M, build)
  local files = { { name = "manifest.json", text = text } }
  for _, module in ipairs(build.modules) do
    files[#files + 1] = { name = module.file, text = module.text }
    if module.cubin then files[#files + 1] = { name = module.cubin.file, text = module.cubin.text } end
  end
  if build.embed then files[#files + 1] = { name = M.model.name .. ".c", text = embed(M, files) } end
  files[#files + 1] = { name = M.model.name .. ".h", text = (header(M, build.modules, digest)) }
  for _, name in ipairs(sorted(build.ir)) do files[#files + 1] = { name = name, text = build.ir[name] } end
  return files
end
