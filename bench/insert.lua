#!/usr/bin/env lua5.4
-- Put what comes in between two marks of a file, in place of what stands there:
--     COMMAND | bench/insert.lua FILE NAME
-- The marks are lines, <!-- NAME --> and <!-- end of NAME -->. Nothing that comes in is an error.
local path, name = arg[1], arg[2]
local function fail(message)
  io.stderr:write("insert: " .. message .. "\n")
  os.exit(1)
end
local text = io.read("a")
if text == "" then fail("nothing to put into " .. path) end
local input = assert(io.open(path))
local whole = input:read("a")
input:close()
local _, from = whole:find("<!-- " .. name .. " -->\n", 1, true)
local to = whole:find("<!-- end of " .. name .. " -->\n", from, true)
if not from or not to then fail(path .. " has no marks for " .. name) end
local output = assert(io.open(path, "w"))
output:write(whole:sub(1, from), "\n", text, "\n", whole:sub(to))
output:close()
