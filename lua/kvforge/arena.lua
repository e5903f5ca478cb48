-- The elastic arena's numbers: one allocation of equal chunks, each one window block of all layers or
-- n envelopes. The words and the steps are those of docs/manifest.md, "arena"; all results are bytes.
local arena = {}

local STATE_ALIGN = 16 -- layers inside a part; also the widest alignment of any state array
local CHUNK_ALIGN = 128
local MAX_ENVELOPES = 1024

local function round_up(value, multiple)
  return (value + multiple - 1) // multiple * multiple
end

local function lcm(a, b)
  local x, y = a, b
  while y ~= 0 do x, y = y, x % y end
  return a // x * b
end

-- Lay the pages of every layer one after the other: by type, place, plane, layer. Returns their bytes.
local function lay_pages(M, id, entries)
  local at = 0
  for _, T in ipairs(M.types) do
    local layers = T.layers + T.draft_layers
    for _, place in ipairs(layers > 0 and T.places or {}) do
      for _, plane in ipairs(place.id == id and place.planes or {}) do
        local stride = round_up(plane.page_bytes, M.model.page_align)
        entries[#entries + 1] = {
          type = T.name, place = place.name, plane = plane.name, offset = at, layer_stride = stride,
        }
        at = at + layers * stride
      end
    end
  end
  return at
end

-- How many envelopes of e bytes a chunk of at least w bytes holds: the count that wastes the smaller
-- share of its chunk, behind the blocks (low) or behind the window (high).
local function envelopes_per_chunk(w, e)
  local low = math.max(1, w // e)
  if w <= e or w == low * e then return math.min(low, MAX_ENVELOPES) end
  local high = low + 1
  -- (w - low e) / w > (high e - w) / (high e), without the divisions
  local better = (w - low * e) * high * e > (high * e - w) * w
  return math.min(better and high or low, MAX_ENVELOPES)
end

-- Put each of the items { bytes, ... }, in their order, into the first part with room for it, at the next
-- multiple of STATE_ALIGN: the parts are first `chunks` whole chunks, then envelopes. An item too large for
-- an envelope opens one more chunk; where there are such, items come in falling size. Sets part and offset of
-- each; returns the number of chunks and of envelopes, or nil if an item is larger than the largest part it
-- may use.
local function fill(items, chunks, chunk_bytes, envelope_bytes)
  local ends = {}
  local function first_part(bytes)
    for part = 0, #ends - 1 do
      local offset = round_up(ends[part + 1], STATE_ALIGN)
      if offset + bytes <= (part < chunks and chunk_bytes or envelope_bytes) then return part, offset end
    end
    return #ends, 0
  end
  for _, item in ipairs(items) do
    local part, offset = first_part(item.bytes)
    if part == #ends and part >= chunks and item.bytes > envelope_bytes then chunks = part + 1 end
    if item.bytes > (part < chunks and chunk_bytes or envelope_bytes) then return nil end
    item.part, item.offset = part, offset
    ends[part + 1] = offset + item.bytes
  end
  return chunks, math.max(0, #ends - chunks)
end

-- Every layer of the model with its number (draft layers after all others) and type.
local function layers_of(M)
  local by_name, layers = {}, {}
  for _, T in ipairs(M.types) do by_name[T.name] = T end
  for _, names in ipairs { M.layers, M.draft_layers } do
    for _, name in ipairs(names) do
      layers[#layers + 1] = { layer = #layers, type = by_name[name] }
    end
  end
  return layers
end

local function part_entries(items)
  local entries = {}
  for i, item in ipairs(items) do
    entries[i] = { layer = item.layer, part = item.part, offset = item.offset }
  end
  table.sort(entries, function(a, b) return a.layer < b.layer end)
  return entries
end

local function state_of(M, chunk_bytes, envelope_bytes)
  local items, total = {}, 0
  for _, layer in ipairs(layers_of(M)) do
    local bytes = layer.type.bytes.request
    if bytes > 0 then items[#items + 1] = { layer = layer.layer, bytes = bytes } end
    total = total + bytes
  end
  table.sort(items, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.layer < b.layer
  end)
  local chunks, envelopes = fill(items, total // chunk_bytes, chunk_bytes, envelope_bytes)
  if not chunks then return nil end
  return { chunks = chunks, envelopes = envelopes, layers = part_entries(items) }
end

-- Bytes of the last `ratio` rows of every tail of stream b.
local function stream_b_bytes(T)
  local bytes = 0
  for _, array in ipairs(T.state) do
    if array.name:match("tail_[kz]b$") then
      bytes = bytes + array.slot_bytes // T.tail_ring * T.ratio
    end
  end
  return bytes
end

local function snapshot_of(M, envelope_bytes)
  local items, total = {}, 0
  for _, layer in ipairs(layers_of(M)) do
    local bytes = layer.type.overlap and stream_b_bytes(layer.type) or 0
    if bytes > 0 then items[#items + 1] = { layer = layer.layer, bytes = bytes } end
    total = total + bytes
  end
  local chunks, envelopes = fill(items, 0, 0, envelope_bytes)
  if not chunks then return nil end
  return { bytes = total, envelopes = envelopes, layers = part_entries(items) }
end

-- arena.of(M) -> the arena object of a completed model; nil in ring mode, without a compressed layer,
-- and where a layer's state is larger than a chunk or its snapshot larger than an envelope.
function arena.of(M)
  if M.model.window_mode ~= "paged" then return nil end
  local align = lcm(M.model.page_align, CHUNK_ALIGN)
  local places = {}
  local w = round_up(lay_pages(M, "window_block", places), align)
  local windows = #places
  local e = round_up(lay_pages(M, "block", places), align)
  if e == 0 then return nil end
  local n = envelopes_per_chunk(w, e)
  local envelope_bytes = math.max(e, round_up((w + n - 1) // n, align))
  local chunk_bytes = n * envelope_bytes
  for i, place in ipairs(places) do
    place.id_stride = i <= windows and chunk_bytes or envelope_bytes
  end
  local state = state_of(M, chunk_bytes, envelope_bytes)
  local snapshot = snapshot_of(M, envelope_bytes)
  if not state or not snapshot then return nil end
  return {
    align = align, chunk_bytes = chunk_bytes, envelope_bytes = envelope_bytes, n = n,
    places = places, state = state, snapshot = snapshot,
  }
end

return arena
