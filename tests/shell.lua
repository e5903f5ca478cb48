-- What tests of the programs need: run a command, temporary directories, files.
local shell = {}

shell.build = os.getenv("KVF_BUILD") or "build"
shell.kvforge = shell.build .. "/bin/kvforge"
shell.kvforge_run = shell.build .. "/bin/kvforge-run"

function shell.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- Tests run side by side already; the executor's threads would only be in one another's way.
local ONE_THREAD = "export KVF_EXECUTOR_THREADS=${KVF_EXECUTOR_THREADS:-1}; "

-- Run a shell command: its exit status, and what it printed on both outputs together.
function shell.run(command)
  local pipe = assert(io.popen("{ " .. ONE_THREAD .. command .. "\n} 2>&1; echo \"exit $?\"", "r"))
  local text = pipe:read("a")
  pipe:close()
  local output, status = text:match("^(.*)exit (%d+)\n$")
  return tonumber(status), output
end

local made = {}

-- A new empty directory, removed by shell.clean().
function shell.directory()
  local pipe = assert(io.popen("mktemp -d /tmp/kvforge-test-XXXXXX", "r"))
  local path = pipe:read("l")
  pipe:close()
  made[#made + 1] = path
  return path
end

function shell.clean()
  for _, path in ipairs(made) do os.execute("rm -rf " .. shell.quote(path)) end
end

function shell.write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

function shell.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

-- An example's text with its windows in rings and one scale a row, which the state cache is driven with.
function shell.ring(text)
  return (text:gsub('"paged"', '"ring"'):gsub('"fp8_ds_mla"', '"fp8_token"'))
end

-- Give a manifest that was changed the checksum that it must have.
function shell.seal(path)
  local zeros = ("0"):rep(64)
  local text = shell.read(path):gsub('"checksum": "%x+"', '"checksum": "' .. zeros .. '"')
  shell.write(path, text)
  local _, sum = shell.run("sha256sum " .. shell.quote(path))
  shell.write(path, (text:gsub(zeros, sum:sub(1, 64), 1)))
end

function shell.exists(path) return (os.execute("test -e " .. shell.quote(path))) == true end

-- The path of a program, or nil.
function shell.find(program)
  local status, output = shell.run("command -v " .. program .. " || ls /usr/local/cuda/bin/" .. program)
  return status == 0 and output:match("^[^\n]+") or nil
end

return shell
