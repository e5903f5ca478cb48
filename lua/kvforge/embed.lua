-- <model>.c: a bundle's files as a C table, for programs that carry their kernels inside.
local escapes = { ["\n"] = "\\n", ["\t"] = "\\t", ['"'] = '\\"', ["\\"] = "\\\\", ["?"] = "\\?" }

-- A byte as it stands in a C string. Octal with three digits ends by itself.
local function escape(byte)
  return escapes[byte] or ("\\%03o"):format(byte:byte())
end

-- Text as lines of C string literals; data without newlines is cut every so often.
local function literal(text)
  local out, at = {}, 1
  while at <= #text do
    local stop = text:find("\n", at, true) or #text
    stop = math.min(stop, at + 199)
    out[#out + 1] = '    "' .. text:sub(at, stop):gsub('[%c"\\?\128-\255]', escape) .. '"'
    at = stop + 1
  end
  return table.concat(out, "\n")
end

--[[
embed(M, files) -> text

Defines <model>_files and <model>_file_count, which <model>.h declares: what kvf_bundle_open_memory
takes. `files` is an array of { name, text }.
]]
return function(M, files)
  local name = require("kvforge.header_names").identifier(M.model.name:lower())
  local out = {
    ("/* The bundle of %s as data. Written by kvforge. */"):format(M.model.name),
    ('#include "%s.h"\n'):format(M.model.name),
  }
  for i, file in ipairs(files) do
    out[#out + 1] = ("static const char file_%d[] = /* %s */\n%s;\n"):format(i, file.name, literal(file.text))
  end
  out[#out + 1] = ("const kvf_file %s_files[] = {"):format(name)
  for i, file in ipairs(files) do
    out[#out + 1] = ('    {"%s", file_%d, sizeof file_%d - 1},'):format(file.name, i, i)
  end
  out[#out + 1] = ("};\nconst uint32_t %s_file_count = %d;"):format(name, #files)
  return table.concat(out, "\n") .. "\n"
end
