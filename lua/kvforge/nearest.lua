-- The known name nearest to a mistyped one, for error messages.

-- Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
local function distance(a, b)
  local before, row = {}, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local last = before
    before, row = row, { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local cost = math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        cost = math.min(cost, last[j - 2] + 1)
      end
      row[j] = cost
    end
  end
  return row[#b]
end

-- The first of `names` (an array) with the fewest edits, at most four and half the name's length; or
-- nil if none is near.
return function(name, names)
  if type(name) ~= "string" or #name > 64 then return nil end
  local best, least = nil, math.min(#name, #name // 2 + 1, 5)
  for _, known in ipairs(names) do
    local edits = distance(name:lower(), known:lower())
    if edits < least then best, least = known, edits end
  end
  return best
end
