#!/usr/bin/env lua5.4
-- Mistakes in a template are errors at build time that name the template's line.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local frame = [[
return kernel {
  name = "x", job = "a test", block = 64, grid = { per("n", 64) },
  params = function() return {
    value("n", u32), value("s", i32), input("a", f32, "[n]", { align = 16, nc = true }), input("narrow", f32, "[n]"),
    output("b", f32, "[n]", { align = 16 }), stride("step", 16),
  } end,
  build = function(T, p)
%s
  end,
}
]]
local FIRST_LINE = 8 -- of the body

-- name, body, part of the message (nil: it must build), line of the body
local cases = {
  { "a plain kernel builds", "local i = thread_id()\nwhen(i:lt(p.n), function() p.b:at(i):store(p.a:at(i):load() * 2) end)" },
  { "types do not mix", "local v = p.n + p.s", "type mismatch: i32 where u32 is needed", 1 },
  { "float and integer do not mix", "\nlocal v = p.a:load() + p.n", "type mismatch", 2 },
  { "a number must fit its type", "local v = p.n + (-1)", "-1 does not fit a u32", 1 },
  { "a fraction is no integer", "local v = p.n * 0.5", "0.5 does not fit a u32", 1 },
  { "< on values", "local v = p.n < 3", "compare them with :lt", 1 },
  { "<= between values", "local v = p.n <= p.n", "compare them with :lt", 1 },
  { "== between values", "local v = p.n + 1\nlocal w = v == p.n", ":eq", 2 },
  { "== with a number", "local w = p.n == 1", "", 1 },
  { "a value as a condition", "\n\nif p.n:lt(3) then error('no') end", "", 3 },
  { "and on values", "local v = p.n:lt(3) and p.n:lt(4)", "", 1 },
  { "not on a value", "local v = not p.n:lt(3)", "", 1 },
  { "a value used outside its branch",
    "local kept\nwhen(p.n:lt(3), function() kept = p.n + 1 end)\np.b:at(kept):store(1.0)", "branch or loop that has ended", 3 },
  { "a value used outside its loop",
    "local kept\nloop(u32, 0, p.n, 1, function(i) kept = i end)\nlocal v = kept + 1", "branch or loop that has ended", 3 },
  { "a shuffle under a varying condition",
    "local x = p.a:load()\nwhen(thread_id():lt(5), function()\nshuffle_xor(x, 1)\nend)", "a shuffle needs all threads of the warp", 3 },
  { "a shuffle under a warp condition builds",
    "local x = p.a:load()\nwhen(warp_id():lt(1), function() p.b:store(shuffle_xor(x, 1)) end)" },
  { "a barrier under a warp condition", "when(warp_id():lt(1), function()\nbarrier()\nend)", "a barrier needs all threads of the block", 2 },
  { "a barrier in a varying loop", "loop(u32, 0, thread_id(), 1, function()\nbarrier()\nend)", "a barrier needs all threads of the block", 2 },
  { "a barrier after a varying return", "return_if(thread_id():lt(3))\nbarrier()", "a barrier needs all threads", 2 },
  { "a barrier under a uniform condition builds", "when(p.n:lt(3), function() barrier() end)" },
  { "return_if inside a branch", "when(p.n:lt(3), function()\nreturn_if(p.n:lt(2))\nend)", "return_if inside a branch", 2 },
  { "a misaligned vector", "local v = p.a:at(1):load(4)", "misaligned vector: the address is known to be a multiple of 4, the access needs 16", 1 },
  { "a vector at an unknown index", "local v = p.a:at(thread_id()):load(4)", "misaligned vector", 1 },
  { "a vector at a scaled index builds", "p.b:at(thread_id() * 4):store(p.a:at(thread_id() * 4):load(4))" },
  { "a vector through a stride builds", "p.b:bytes(p.n:to(u64) * p.step):store(p.a:load(4))" },
  { "a pointer whose alignment was not stated", "local v = p.narrow:load(2)", "misaligned vector", 1 },
  { "an access of 32 bytes", "local v = p.a:load(8)", "an access moves 1 to 16 bytes", 1 },
  { "a store of another type", "p.b:store(p.n)", "type mismatch", 1 },
  { "arithmetic on a pointer", "local v = p.a + 4", "move a pointer with :at()", 1 },
  { "// on signed integers", "local v = p.s // 2", "// is for unsigned integers", 1 },
  { "an unknown parameter", "local v = p.m", "the kernel has no parameter 'm'", 1 },
  { "an unknown name", "\nlocal v = frobnicate(1)", "no name 'frobnicate' in the kernel language", 2 },
  { "a global assigned", "answer = 42", "sets the global 'answer'", 1 },
  { "an unknown instruction", "asm('nonsense')", "no instruction 'nonsense' in the table", 1 },
  { "too few operands", "asm('cvt_e4m3x2', p.a:load())", "cvt_e4m3x2 takes 2 operands", 1 },
  { "an asynchronous copy that may be misaligned",
    "asm('cp_async16', shared(f32, 4), p.narrow, const(u32, 16))",
    "operand 2 of cp_async16 is known to be a multiple of 4, it needs 16", 1 },
  { "an asynchronous copy the wrong way", "asm('cp_async16', p.b, shared(f32, 4), const(u32, 16))",
    "operand 1 of cp_async16 is a pointer into another memory", 1 },
  { "an asynchronous copy builds",
    "local s = shared(f32, 4)\nasm('cp_async16', s, p.a, const(u32, 16))\nasm('cp_async_wait_all')" },
  { "a barrier of some warps under a varying condition",
    "when(thread_id():lt(5), function()\nasm('barrier_some', const(u32, 1), const(u32, 32))\nend)",
    "barrier_some needs all threads of the warp", 2 },
  { "the shared memory of a chip builds",
    "assert(shared_limit('sm_89') == 99 * 1024 and shared_limit() == 227 * 1024 and not shared_limit('x'))" },
  { "a varying value in a uniform variable", "local v = variable(u32, 0, 'uniform')\nv:set(thread_id())", "a varying value is put into a uniform variable", 2 },
  { "a uniform variable set in a varying branch",
    "local v = variable(u32, 0, 'uniform')\nwhen(thread_id():lt(3), function()\nv:set(1)\nend)", "a varying value is put into a uniform variable", 3 },
  { "syntax", "local = 3", "", 1 },
}

local dir = shell.directory()
local template, out = dir .. "/x.lua", dir .. "/out"

local function build(body)
  shell.write(template, (frame:gsub("%%s", function() return body end)))
  return shell.run(("%s build examples/tiny.lua --templates %s -o %s"):format(shell.kvforge, dir, out))
end

tap.plan(#cases)
for _, case in ipairs(cases) do
  local name, body, message, line = table.unpack(case)
  local status, output = build(body)
  if not message then
    if not tap.ok(status == 0, name) then tap.note(output) end
  else
    local where = ("x.lua:%d:"):format(FIRST_LINE + line - 1)
    local good = status == 70 and output:find(where, 1, true) and output:find(message, 1, true)
      and not shell.exists(out .. ".new")
    if not tap.ok(good, name) then tap.note(status .. " " .. output .. "\nexpected " .. where .. " " .. message) end
  end
end
shell.clean()
tap.done()
