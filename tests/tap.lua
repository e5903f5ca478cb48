-- TAP for a test program in Lua: tap.plan(n), tap.ok(good, name), tap.is(got, want, name), tap.done().
local tap = { ran = 0, failed = 0, planned = 0 }

function tap.plan(count)
  tap.planned = count
  print("1.." .. count)
end

function tap.skip_all(why)
  print("1..0 # SKIP " .. why)
  os.exit(0)
end

function tap.note(text)
  print("# " .. tostring(text):gsub("\n", "\n# "))
end

function tap.ok(good, name)
  tap.ran = tap.ran + 1
  print((good and "ok " or "not ok ") .. tap.ran .. " - " .. name)
  if not good then
    tap.failed = tap.failed + 1
    local where = debug.getinfo(2, "Sl")
    if where.short_src:find("tap.lua", 1, true) then where = debug.getinfo(3, "Sl") end
    tap.note("failed at " .. where.short_src .. ":" .. where.currentline)
  end
  return good
end

function tap.is(got, want, name)
  local good = tap.ok(got == want, name)
  if not good then tap.note("got  " .. tostring(got) .. "\nwant " .. tostring(want)) end
  return good
end

-- `part` occurs in `text`, literally.
function tap.contains(text, part, name)
  local good = tap.ok(type(text) == "string" and text:find(part, 1, true) ~= nil, name)
  if not good then tap.note("text: " .. tostring(text) .. "\nlacks: " .. part) end
  return good
end

function tap.skip(count, why)
  for _ = 1, count do
    tap.ran = tap.ran + 1
    print("ok " .. tap.ran .. " # SKIP " .. why)
  end
end

function tap.done()
  if tap.ran ~= tap.planned then tap.note("planned " .. tap.planned .. ", ran " .. tap.ran) end
  os.exit(tap.failed == 0 and tap.ran == tap.planned and 0 or 1)
end

return tap
