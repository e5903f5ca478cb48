#!/usr/bin/env lua5.4
-- Every format's rows, pages and offsets, and the model's totals, against arithmetic done by hand
-- (sizes of FlashMLA's, vLLM's and ATOM's pages; bytes a token as published for DeepSeek-V4).
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local layout = require "kvforge.layout"
local load_spec = require "kvforge.load"

local latent = { nope = 448, rope = 64, head = 512 }

local function page(format, rows, sizes, align)
  return layout.place("window", "window_block", rows, format, sizes or latent, align or 32)
end

tap.plan(85)

-- ---- bytes of a row and of a page ----

tap.is(page("bf16", 128).row_bytes, 1024, "bf16: 1024 bytes a row")
tap.is(page("fp8_token", 128).row_bytes, 580, "fp8_token: 448 + 128 + 4")
tap.is(page("fp8_ds_mla", 128).row_bytes, 584, "fp8_ds_mla: 448 + 128 + 7 + 1")
tap.is(page("fp8_two_plane", 128).row_bytes, 640, "fp8_two_plane: 512 + 128")
tap.is(page("fp8_index", 128, { dim = 128 }).row_bytes, 132, "fp8_index: 128 + 4")
tap.is(page("fp4_index", 128, { dim = 128 }).row_bytes, 68, "fp4_index: 64 + 4")

for _, case in ipairs {
  -- FlashMLA's page strides, and the same pages without its rounding
  { "fp8_ds_mla", 2, 576, 1728 }, { "fp8_ds_mla", 32, 576, 19008 }, { "fp8_ds_mla", 64, 576, 37440 },
  { "fp8_ds_mla", 128, 576, 74880 }, { "fp8_ds_mla", 256, 576, 149760 }, { "fp8_ds_mla", 1, 576, 1152 },
  { "fp8_ds_mla", 128, 32, 74752 }, { "fp8_ds_mla", 1, 32, 608 }, { "fp8_ds_mla", 2, 32, 1184 },
  { "fp8_index", 64, 576, 8640 }, { "fp4_index", 64, 576, 4608 }, { "fp8_index", 64, 32, 8448 },
  { "fp4_index", 64, 32, 4352 }, { "fp8_index", 1, 32, 160 },
  -- planes are packed, whatever the alignment
  { "fp8_token", 1, 576, 580 }, { "fp8_two_plane", 3, 576, 1920 }, { "bf16", 1, 576, 1024 },
} do
  local format, rows, align, bytes = table.unpack(case)
  local sizes = format:find "index" and { dim = 128 } or latent
  tap.is(page(format, rows, sizes, align).page_bytes, bytes,
    ("%s: a page of %d rows at %d"):format(format, rows, align))
end

-- ---- offsets ----

local ds = page("fp8_ds_mla", 64, latent, 576)
tap.is(layout.offset(ds, "nope", 3), 3 * 576, "fp8_ds_mla: rows are 576 apart")
tap.is(layout.offset(ds, "rope", 3), 3 * 576 + 448, "rope after nope")
tap.is(layout.offset(ds, "scale", 0), 36864, "footers after the rows")
tap.is(layout.offset(ds, "scale", 63), 36864 + 63 * 8, "eight bytes each")
tap.is(layout.offset(ds, "pad", 2), 36864 + 2 * 8 + 7, "the last one padding")
tap.is(ds.field.scale.count .. " " .. ds.field.pad.count, "7 1", "seven scales and a pad")
tap.is(ds.scale.block .. ds.scale.kind, "64power", "one for 64 elements")
tap.is(ds.field.nope.scale_block, 64, "as the field says")
tap.is(layout.offset(page("fp8_ds_mla", 256), "scale", 0), 147456, "256 rows: footers at 147456")
tap.is(#ds.planes .. ds.planes[1].name .. ds.planes[1].align, "1swa_rows16", "one plane of 16-byte vectors")

local two = page("fp8_two_plane", 128)
tap.is(layout.offset(two, "nope", 5), 5 * 512, "fp8_two_plane: rows are 512 apart")
tap.is(layout.offset(two, "scale", 5), 5 * 512 + 448, "scales follow the codes")
tap.is(two.field.scale.count, 14, "each twice")
tap.is(two.field.pad.count .. " " .. two.field.pad.offset, "50 462", "50 zeros at 462")
tap.is(two.field.rope.plane .. layout.offset(two, "rope", 5), "swa_rope640", "rope in its own plane")
tap.is(two.scale.copies, 2, "the quantiser is told to write two")

local index8 = page("fp8_index", 32, { dim = 128 })
tap.is(layout.offset(index8, "codes", 31), 31 * 128, "fp8_index: codes first")
tap.is(layout.offset(index8, "scale", 31), 32 * 128 + 31 * 4, "then scales")
tap.is(index8.scale.block .. index8.scale.kind .. index8.scale.dtype, "128powerf32",
  "one power of two a row, as a float")
local index4 = page("fp4_index", 32, { dim = 128 })
tap.is(layout.offset(index4, "codes", 31), 31 * 64, "fp4_index: two codes a byte")
tap.is(index4.field.codes.count, 128, "128 of them")
tap.is(layout.offset(index4, "scale", 31), 32 * 64 + 31 * 4, "then four scales a row")
tap.is(index4.scale.block, 32, "one for 32 elements")

local token = page("fp8_token", 128)
tap.is(#token.planes, 3, "fp8_token: three planes")
tap.is(token.plane.swa_inv.align, 4, "single floats need 4")
tap.is(token.plane.swa_inv.page_bytes, 512, "128 of them")
tap.is(layout.offset(token, "scale", 7), 28, "one after the other")
tap.is(page("bf16", 128).field.rope.offset, 896, "bf16: rope after nope in one row")

-- Fields of a page neither overlap nor leave a hole, apart from the rounding at the end.
local function tiles(place)
  local used = {}
  for _, plane in ipairs(place.planes) do used[plane.name] = {} end
  for _, field in ipairs(place.fields) do
    local bytes = field.count * layout.formats.bits[field.dtype] // 8
    for row = 0, place.rows - 1 do
      for byte = 0, bytes - 1 do
        local at = layout.offset(place, field.name, row) + byte
        if used[field.plane][at] then return false end
        used[field.plane][at] = true
      end
    end
  end
  local sum = 0
  for _, plane in ipairs(place.planes) do
    local count = 0
    for at in pairs(used[plane.name]) do
      count = count + 1
      if at >= plane.page_bytes then return false end
    end
    for at = 0, count - 1 do
      if not used[plane.name][at] then return false end
    end
    sum = sum + count
  end
  return sum == place.rows * place.row_bytes
end
for _, format in ipairs { "bf16", "fp8_token", "fp8_ds_mla", "fp8_two_plane" } do
  tap.ok(tiles(page(format, 5)), format .. ": fields tile a page")
end
for _, format in ipairs { "fp8_index", "fp4_index" } do
  tap.ok(tiles(page(format, 5, { dim = 64 })), format .. ": fields tile a page")
end
tap.ok(tiles(page("fp8_ds_mla", 3, { nope = 960, rope = 64, head = 1024 })), "15 scales and a pad")

-- ---- whole models ----

-- Flash without its draft layer, in a format and window mode of the caller's.
local function flash(format, index_format, mode, extra)
  local text = ([[
    local kv = require "kvforge"
    local latent = { head_dim = 512, rope_dim = 64, window = 128, format = "%s",
                     rope = kv.rope { theta = 10000 } }
    return kv.model {
      name = "flash", heads = 64, max_positions = 1048576, window_mode = "%s", %s
      types = {
        swa = kv.layer_type { latent, ratio = 0 },
        csa = kv.layer_type { latent, ratio = 4, overlap = true,
                              indexer = kv.indexer { heads = 64, dim = 128, topk = 512, format = "%s" } },
        hca = kv.layer_type { latent, ratio = 128 },
      },
      layers = { kv.of("swa", 2), kv.alternate(20, "csa", "hca"), "csa" },
    }]]):format(format, mode, extra or "", index_format)
  local M, errors = load_spec(text, "@flash.lua")
  if not M then error(table.concat(errors, "\n")) end
  return M
end

-- Payload of the compressed and index rows of all layers, per token of context.
local function bytes_a_token(M)
  local sum = 0
  for _, T in ipairs(M.types) do
    for _, place in ipairs(T.places) do
      if place.id == "block" then sum = sum + T.layers * place.row_bytes / T.ratio end
    end
  end
  return sum
end
tap.is(bytes_a_token(flash("fp8_ds_mla", "fp8_index", "paged")), 3850.25, "Flash, fp8 index rows")
tap.is(bytes_a_token(flash("fp8_ds_mla", "fp4_index", "paged")), 3514.25, "Flash, fp4 index rows")

local M = flash("fp8_ds_mla", "fp8_index", "ring")
tap.is(M.types[3].state[1].slot_bytes, 74752, "a ring of 128 rows of fp8_ds_mla")
tap.is(M.types[3].state[1].dtype .. M.types[3].state[1].shape[1], "u874752", "is plain bytes")
tap.is(M.bytes.window_block, 43 * 74752, "3,214,336 bytes of window a request")

M = flash("fp8_ds_mla", "fp8_index", "paged", "page_align = 576,")
tap.is(M.types[3].place.window.page_bytes, 74880, "74,880 bytes a 128-row page")
tap.is(#M.types[3].state, 0, "a window layer has no state in paged mode")
tap.is(M.types[1].state[1].name, "tail_ka", "a compressed one has its tails")

-- ---- tails ----

local function tails(extra)
  local names = {}
  for i, array in ipairs(flash("fp8_ds_mla", "fp8_index", "paged", extra).types[2].state) do
    names[i] = array.name .. " " .. array.dtype .. " " .. table.concat(array.shape, "x")
  end
  return table.concat(names, ", ")
end
tap.is(tails "", "tail_ka f32 128x512, tail_za f32 128x512, tail_len i32 ", "tails as the model keeps them")
tap.is(tails "state_dtype = \"bf16\", drafts = 3,",
  "tail_ka bf16 131x512, tail_za bf16 131x512, tail_len i32 ", "narrower, with room for drafts")
tap.is(tails "online = true,",
  "tail_max f32 512, tail_sum f32 512, tail_acc f32 512, tail_len i32 ", "as a running softmax")

-- ---- the arena, as its definition works it out for Flash ----

local arena = M.arena
tap.is(arena.align, 1152, "lcm(576, 128)")
tap.is(arena.n, 6, "6.20 envelopes a window block: six")
tap.is(arena.envelope_bytes, 536832, "an envelope")
tap.is(arena.chunk_bytes, 3220992, "a chunk")
tap.is(arena.snapshot.bytes .. " " .. arena.snapshot.envelopes, "430080 1", "a snapshot")
tap.is(arena.state.chunks .. " " .. arena.state.envelopes, "3 6", "request state")
local rows = arena.places[5]
tap.is(rows.type .. rows.place .. rows.plane, "csaindexindex_rows", "places in order")
tap.is(rows.offset .. " " .. rows.layer_stride, "399168 4608", "index rows after 21 * 19008")

-- Nothing in a chunk, an envelope or a part overlaps, and all of it fits.
local function disjoint(spans, size)
  table.sort(spans, function(a, b) return a[1] < b[1] end)
  local at = 0
  for _, span in ipairs(spans) do
    if span[1] < at then return false end
    at = span[1] + span[2]
  end
  return at <= size
end
local function arena_good(model)
  local a, types, layers = model.arena, {}, {}
  for _, T in ipairs(model.types) do types[T.name] = T end
  for _, list in ipairs { model.layers, model.draft_layers } do
    for _, name in ipairs(list) do layers[#layers + 1] = types[name] end
  end
  local window, envelope, parts, strides = {}, {}, {}, true
  for _, p in ipairs(a.places) do
    strides = strides and p.id_stride == (p.place == "window" and a.chunk_bytes or a.envelope_bytes)
    local T = types[p.type]
    for i = 0, T.layers + T.draft_layers - 1 do
      local into = p.place == "window" and window or envelope
      into[#into + 1] = { p.offset + i * p.layer_stride, T.place[p.place].plane[p.plane].page_bytes }
    end
  end
  local good = strides and disjoint(window, a.chunk_bytes) and disjoint(envelope, a.envelope_bytes)
    and a.chunk_bytes == a.n * a.envelope_bytes and a.envelope_bytes % a.align == 0
  local state = 0
  for _, entry in ipairs(a.state.layers) do
    local part = parts[entry.part] or {}
    parts[entry.part] = part
    part[#part + 1] = { entry.offset, layers[entry.layer + 1].bytes.request }
    state = state + layers[entry.layer + 1].bytes.request
  end
  for number, part in pairs(parts) do
    local size = number < a.state.chunks and a.chunk_bytes or a.envelope_bytes
    good = good and number < a.state.chunks + a.state.envelopes and disjoint(part, size)
  end
  return good and state == model.bytes.request
end

-- n, worked out another way: of the two counts around w / e, the one with the smaller share wasted.
local function best_n(model)
  local a, end_of = model.arena, { window = 0, block = 0 }
  for _, T in ipairs(model.types) do
    for _, p in ipairs(a.places) do
      if p.type == T.name then
        local kind = p.place == "window" and "window" or "block"
        end_of[kind] = math.max(end_of[kind], p.offset + (T.layers + T.draft_layers) * p.layer_stride)
      end
    end
  end
  local w, e = (end_of.window + a.align - 1) // a.align * a.align,
    (end_of.block + a.align - 1) // a.align * a.align
  local low, high = math.floor(w / e), math.ceil(w / e)
  local share = { (w - low * e) / w, (high * e - w) / (high * e) }
  return share[1] <= share[2] and low or high, low
end
local chose_high = 0
for _, format in ipairs { "bf16", "fp8_token", "fp8_ds_mla", "fp8_two_plane" } do
  for _, index in ipairs { "fp8_index", "fp4_index" } do
    for _, block in ipairs { 128, 256 } do
      for _, align in ipairs { 32, 576, 4096 } do
        local model = flash(format, index, "paged", ("block = %d, page_align = %d,"):format(block, align))
        local n, low = best_n(model)
        if model.arena.n ~= n then tap.note(format .. " " .. block .. " " .. align) chose_high = -1000 end
        if n > low then chose_high = chose_high + 1 end
      end
    end
  end
end
tap.ok(chose_high > 0, "n is the better of the two counts around w / e, in 48 models (" .. chose_high
  .. " times the upper)")
for _, format in ipairs { "bf16", "fp8_token", "fp8_two_plane" } do
  tap.ok(arena_good(flash(format, "fp4_index", "paged", "drafts = 3,")), "arena of " .. format
    .. " is sound")
end
tap.ok(arena_good(M), "and of fp8_ds_mla")
tap.is(flash("bf16", "fp8_index", "ring").arena, nil, "no arena in ring mode")

-- A chunk is one window block of all layers: with few layers it does not hold a layer's fp32 tails.
local file = assert(io.open("examples/flash-narrow.lua"))
local narrow = file:read("a")
file:close()
local function narrow_arena(dtype)
  return load_spec((narrow:gsub('"bf16", checkpoint', '"' .. dtype .. '", checkpoint')), "@narrow.lua").arena
end
tap.ok(narrow_arena("bf16"), "chunks of four layers hold bf16 tails of an HCA layer")
tap.is(narrow_arena("f32"), nil, "and fp32 tails would run over a chunk's end: no arena")
tap.done()
