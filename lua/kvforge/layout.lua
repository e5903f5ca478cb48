-- Every size, offset and stride of a model. Nobody else computes an address.
--
-- Row r of page id of a place lies at base + id * page stride + offset(field) + r * stride(field).
-- All results are bytes unless a name says otherwise.
local arena = require "kvforge.arena"
local formats = require "kvforge.formats"

local layout = { formats = formats }

-- Accesses to nope, rope, codes and tails are vectors of this many bytes.
local VECTOR = 16

local function round_up(value, multiple)
  return (value + multiple - 1) // multiple * multiple
end

local function size_of(dtype, count)
  return count * formats.bits[dtype] // 8
end

-- ---- places ----

local function count_of(field, sizes)
  local count = sizes[field.count] or field.count
  return count // (field.per or 1) * (field.copies or 1)
end

local function pad_bytes(field, record, sizes)
  if type(field.fill) == "number" then return round_up(record, field.fill) - record end
  return sizes[field.fill] - record
end

-- Lay one section's record out: its fields at their offset inside the record, and its bytes.
local function lay_record(section, sizes)
  local placed, record = {}, 0
  for _, field in ipairs(section) do
    local count = field.fill and pad_bytes(field, record, sizes) or count_of(field, sizes)
    if count > 0 then
      placed[#placed + 1] = {
        name = field.name, dtype = field.dtype, count = count, offset = record,
      }
      record = record + size_of(field.dtype, count)
    end
  end
  return placed, record
end

-- What the address of a field must be a multiple of: whole vectors, or single elements.
local function field_align(field)
  if field.dtype == "pad" then return 1 end
  return field.count >= VECTOR and VECTOR or math.max(1, formats.bits[field.dtype] // 8)
end

local function lay_plane(plane, prefix, rows, sizes)
  local laid = { name = prefix .. plane.suffix, align = 1, fields = {} }
  local start = 0
  for _, section in ipairs(plane.sections) do
    local placed, record = lay_record(section, sizes)
    for _, field in ipairs(placed) do
      field.plane = laid.name
      field.offset = start + field.offset
      field.stride = record
      laid.align = math.max(laid.align, field_align(field))
      laid.fields[#laid.fields + 1] = field
    end
    start = start + rows * record
  end
  laid.page_bytes = start
  return laid
end

local prefixes = { window = "swa_", compressed = "kv_", index = "index_" }

--[[
layout.place(name, id, rows, format, sizes, page_align) -> place

name   "window", "compressed", "index"; id what a page belongs to; rows B
sizes  nope, rope, head (elements) of a latent, or dim of an index key

The place has the manifest's words: name, id, rows, row_bytes, page_bytes, planes[], fields[]; and
for templates `format`, `scale` (how the quantised field is scaled, with block in elements),
`field` and `plane`: fields and planes by name.
]]
function layout.place(name, id, rows, format, sizes, page_align)
  local description = formats[format]
  local place = {
    name = name, id = id, rows = rows, format = format, row_bytes = 0, page_bytes = 0,
    planes = {}, fields = {}, plane = {}, field = {},
  }
  local scale = description.scale
  local block = scale and (sizes[scale.block] or scale.block)
  if scale then
    place.scale = {
      dtype = scale.dtype, kind = scale.kind, block = block, copies = scale.copies or 1,
    }
  end
  for _, plane in ipairs(description.planes) do
    local laid = lay_plane(plane, prefixes[name], rows, sizes)
    if description.round then laid.page_bytes = round_up(laid.page_bytes, page_align) end
    place.page_bytes = place.page_bytes + laid.page_bytes
    place.planes[#place.planes + 1] = laid
    place.plane[laid.name] = laid
    for _, field in ipairs(laid.fields) do
      place.row_bytes = place.row_bytes + size_of(field.dtype, field.count)
      field.scale_block = (field.name == "nope" or field.name == "codes") and block or nil
      place.fields[#place.fields + 1] = field
      place.field[field.name] = field
    end
  end
  return place
end

-- Where field `name` of row r of a page begins, from the page's start in the field's plane.
function layout.offset(place, name, row)
  local field = place.field[name]
  return field.offset + row * field.stride
end

-- Why a format cannot hold rows of these sizes: the size's name, the rule and what is allowed; nil
-- if it can.
function layout.refusal(format, sizes)
  local description = formats[format]
  local scale = description.scale
  local of = description.rows == "index" and "dim" or "nope"
  if scale and type(scale.block) == "number" and sizes[of] % scale.block ~= 0 then
    return of, "must be a multiple of the scale's block",
      ("multiples of %d for %s"):format(scale.block, format)
  end
  for _, plane in ipairs(description.planes) do
    for _, section in ipairs(plane.sections) do
      local record = 0
      for _, field in ipairs(section) do
        if field.fill and type(field.fill) == "string" and record > sizes[field.fill] then
          return of, "leaves no room for the scales in a row",
            ("nope + nope/32 at most head_dim for %s"):format(format)
        end
        if not field.fill then
          local bytes = size_of(field.dtype, count_of(field, sizes))
          if bytes % VECTOR ~= 0 and field.name ~= "scale" then
            return field.count, "must fill whole 16-byte vectors",
              ("multiples of %d for %s"):format(VECTOR * 8 // formats.bits[field.dtype], format)
          end
          record = record + bytes
        end
      end
    end
  end
end

-- ---- the state cache: arrays that one request slot owns in one layer ----

local function state_array(name, dtype, shape, init, align)
  local count = 1
  for _, extent in ipairs(shape) do count = count * extent end
  return {
    name = name, dtype = dtype, shape = shape, init = init,
    slot_bytes = size_of(dtype, count), align = align,
  }
end

-- A window plane as an array: element type and shape where all rows are alike, else plain bytes.
local function plane_array(plane, ring)
  local field = plane.fields[1]
  local init = field.name == "scale" and 1 or 0 -- an inverse scale of 1, as the seed has it
  if plane.page_bytes ~= ring * field.stride then
    return state_array(plane.name, "u8", { plane.page_bytes }, 0, plane.align)
  end
  local dtype = field.dtype
  if formats.bits[dtype] == 8 then dtype = "u8" end
  local extent = field.stride * 8 // formats.bits[dtype]
  local shape = extent == 1 and { ring } or { ring, extent }
  return state_array(plane.name, dtype, shape, init, plane.align)
end

local function add_window(state, T)
  for _, plane in ipairs(T.place.window.planes) do
    state[#state + 1] = plane_array(plane, T.ring)
  end
  state[#state + 1] = state_array("swa_pos", "i32", { T.ring }, -1, 4)
  state[#state + 1] = state_array("swa_head", "i32", {}, 0, 4)
end

-- The tails of one compressor: stream a, with overlap stream b, values (k) and scores (z).
local function add_tails(state, T, prefix, dim, model)
  if model.online and not T.overlap then
    for _, name in ipairs { "max", "sum", "acc" } do
      state[#state + 1] = state_array(prefix .. "tail_" .. name, "f32", { dim }, 0, VECTOR)
    end
  else
    for _, stream in ipairs(T.overlap and { "a", "b" } or { "a" }) do
      for _, what in ipairs { "k", "z" } do
        state[#state + 1] = state_array(prefix .. "tail_" .. what .. stream, model.state_dtype,
          { T.tail_ring, dim }, 0, VECTOR)
      end
    end
  end
  state[#state + 1] = state_array(prefix .. "tail_len", "i32", {}, 0, 4)
end

-- Widest alignment first, otherwise in the order above: then every array begins where the one
-- before it ends, because an array's slot is a multiple of its alignment.
local function packed(state)
  local ordered, aligns = {}, { VECTOR, 8, 4, 2, 1 }
  for _, align in ipairs(aligns) do
    for _, array in ipairs(state) do
      if array.align == align then ordered[#ordered + 1] = array end
    end
  end
  return ordered
end

local function state_of(T, model)
  local state = {}
  if model.window_mode == "ring" then add_window(state, T) end
  if T.ratio > 0 then add_tails(state, T, "", T.head_dim, model) end
  if T.indexer then add_tails(state, T, "idx_", T.indexer.dim, model) end
  return packed(state)
end

-- ---- a layer type, and the model ----

local function places_of(T, model)
  local latent = { nope = T.nope_dim, rope = T.rope_dim, head = T.head_dim }
  local ring = model.window_mode == "ring"
  local places = {
    layout.place("window", ring and "slot" or "window_block", ring and T.ring or model.block,
      T.format, latent, model.page_align),
  }
  if T.ratio > 0 then
    places[#places + 1] =
      layout.place("compressed", "block", T.k, T.format, latent, model.page_align)
  end
  if T.indexer then
    places[#places + 1] = layout.place("index", "block", T.k, T.indexer.format,
      { dim = T.indexer.dim }, model.page_align)
  end
  return places
end

-- Bytes of `block` window rows, whatever the window mode: long chunks keep a workspace of such pages.
local function window_block_bytes(T, model)
  local latent = { nope = T.nope_dim, rope = T.rope_dim, head = T.head_dim }
  return layout.place("window", "window_block", model.block, T.format, latent,
    model.page_align).page_bytes
end

local function complete_type(T, model)
  T.model = model
  T.nope_dim = T.head_dim - T.rope_dim
  T.ring = T.window + model.drafts
  T.k = T.ratio > 0 and model.block // T.ratio or 0
  T.tail_ring = T.ratio > 0 and (T.overlap and 2 or 1) * T.ratio + model.drafts or 0
  T.places, T.place = places_of(T, model), {}
  for _, place in ipairs(T.places) do T.place[place.name] = place end
  T.state = state_of(T, model)
  T.bytes = {
    row = T.place.window.row_bytes, block = 0, request = 0,
    window_block = window_block_bytes(T, model),
  }
  for _, place in ipairs(T.places) do
    if place.id == "block" then T.bytes.block = T.bytes.block + place.page_bytes end
  end
  for _, array in ipairs(T.state) do T.bytes.request = T.bytes.request + array.slot_bytes end
end

local function count_layers(T, names)
  local count = 0
  for _, name in ipairs(names) do
    if name == T.name then count = count + 1 end
  end
  return count
end

-- Payload bytes that one token of context costs in all layers: compressed and index rows, without the
-- rounding of pages.
function layout.context_bytes(M)
  local bytes = 0
  for _, T in ipairs(M.types) do
    for _, place in ipairs(T.places) do
      if place.id == "block" then
        bytes = bytes + (T.layers + T.draft_layers) * place.row_bytes / T.ratio
      end
    end
  end
  return bytes
end

-- layout.complete(checked) -> the resolved model M: `checked` (model, types, layers, draft_layers as
-- check.lua leaves them) with everything that follows from it added.
function layout.complete(M)
  M.bytes = { block = 0, window_block = 0, request = 0 }
  for _, T in ipairs(M.types) do
    complete_type(T, M.model)
    T.layers = count_layers(T, M.layers)
    T.draft_layers = count_layers(T, M.draft_layers)
    for what in pairs(M.bytes) do
      M.bytes[what] = M.bytes[what] + (T.layers + T.draft_layers) * T.bytes[what]
    end
  end
  M.arena = arena.of(M)
  return M
end

return layout
