-- Lines executed by the tests, file by file: reads what gcov says of every object in a build directory.
-- Usage: lua5.4 tests/coverage.lua BUILD
local build = assert(arg[1], "which build directory?")

local function lines_of(command)
  local pipe = assert(io.popen(command, "r"))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  return lines
end

-- A file is compiled once, save headers; of several answers the best counts.
local found = {}
for _, data in ipairs(lines_of("find " .. build .. "/obj -name '*.gcda'")) do
  local file
  for _, line in ipairs(lines_of("gcov -n -r -s . -o " .. data .. " " .. data .. " 2>/dev/null")) do
    file = line:match("^File '(.*)'$") or file
    local percent, total = line:match("^Lines executed:([%d.]+)%% of (%d+)$")
    if file and percent then
      local all = tonumber(total)
      local hit = math.floor(tonumber(percent) * all / 100 + 0.5)
      if not found[file] or found[file].hit < hit then found[file] = { hit = hit, total = all } end
      file = nil
    end
  end
end

local names, folders = {}, {}
for name, count in pairs(found) do
  names[#names + 1] = name
  local folder = name:match("^(.*)/") or "."
  folders[folder] = folders[folder] or { hit = 0, total = 0 }
  folders[folder].hit = folders[folder].hit + count.hit
  folders[folder].total = folders[folder].total + count.total
end
table.sort(names)
if #names == 0 then
  io.stderr:write("coverage: nothing was measured in " .. build .. "\n")
  os.exit(1)
end

local function print_row(name, count)
  print(("%-40s %6.1f%%  %5d of %5d"):format(name, 100 * count.hit / count.total, count.hit, count.total))
end
for _, name in ipairs(names) do print_row(name, found[name]) end
print()
local sorted = {}
for folder in pairs(folders) do sorted[#sorted + 1] = folder end
table.sort(sorted)
for _, folder in ipairs(sorted) do print_row(folder .. "/", folders[folder]) end
