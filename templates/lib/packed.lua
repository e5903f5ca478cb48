-- Packed lists: slices of one array.
local packed = {}

-- Types whose tokens read every entry they see.
function packed.reads_all(T) return T.ratio > 0 and not T.indexer end

-- A token's slice: its first element and its length; 0 if the slice does not lie in the array's `count`.
function packed.slice(indptr, token, count)
  local first, past = indptr:at(token):load():to(u32), indptr:at(token + 1):load():to(u32)
  local good = first:le(past) & past:le(count)
  return good:select(first, 0), good:select(past - first, 0)
end

-- `count` elements by `item`, then -1 up to `room`; each lane every 32nd.
function packed.fill(to, room, count, item)
  loop(u32, lane_id(), count, 32, function(i) to:at(i):store(item(i)) end)
  packed.clear(to, count, room)
end

-- -1 from element `from` (a count or 0) up to `room`.
function packed.clear(to, from, room)
  loop(u32, lane_id() + from, room, 32, function(i) to:at(i):store(-1) end)
end

return packed
