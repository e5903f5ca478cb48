-- What a spec resolves to, for people (`kvforge explain`) or as JSON (`--json`: the manifest's objects
-- without the modules, and context_bytes).
local fields = require "kvforge.fields"
local json = require "kvforge.json"
local layout = require "kvforge.layout"
local objects = require "kvforge.objects"

local writer = {}
writer.__index = writer

function writer:line(text, ...)
  self.out[#self.out + 1] = (select("#", ...) > 0 and text:format(...) or text):gsub("%s+$", "")
end

-- Print rows of cells under a header: the first `left` columns flush left, the others right.
function writer:grid(indent, left, rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #tostring(cell)) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      cells[i] = (i <= left and "%-" .. widths[i] .. "s" or "%" .. widths[i] .. "s"):format(cell)
    end
    self:line((" "):rep(indent) .. table.concat(cells, "  "))
  end
end

local function plural(count, noun)
  return ("%d %s%s"):format(count, noun, count == 1 and "" or "s")
end

function writer:model(M)
  local m = M.model
  self:line("model %s", m.name)
  self:line("  %s, blocks of %d positions, %s, %d positions at most", plural(m.heads, "query head"),
    m.block, plural(m.drafts, "draft"), m.max_positions)
  self:line("  window rows in a %s, input %s, tails %s, targets %s",
    m.window_mode == "ring" and "ring per request" or "pool of window blocks", m.input_dtype,
    m.state_dtype, table.concat(m.targets, " "))
  local options = {}
  for _, field in ipairs(fields.of("model")) do
    if field.type == "boolean" then
      options[#options + 1] = (m[field.name] and "" or "no ") .. field.name
    end
  end
  self:line("  %s", table.concat(options, ", "))
  self:line("  norm_eps %s, page_align %d, split_rows %d, checkpoint %d", fields.show(m.norm_eps),
    m.page_align, m.split_rows, m.checkpoint)
end

local pages = {
  slot = "one request slot", window_block = "one window block", block = "one block",
}

function writer:place(place)
  self:line("\n  %s rows: a page of %d for %s; %d bytes a row, %d a page", place.name, place.rows,
    pages[place.id], place.row_bytes, place.page_bytes)
  local rows = { { "plane", "field", "type", "count", "offset", "stride" } }
  for _, field in ipairs(place.fields) do
    rows[#rows + 1] =
      { field.plane, field.name, field.dtype, field.count, field.offset, field.stride }
  end
  self:grid(4, 3, rows)
end

function writer:state(T)
  if #T.state == 0 then return end
  self:line("\n  state of one request in one layer: %d bytes", T.bytes.request)
  local rows = { { "array", "type", "shape", "init", "bytes" } }
  for _, array in ipairs(T.state) do
    local shape = #array.shape == 0 and "scalar" or table.concat(array.shape, " x ")
    rows[#rows + 1] = { array.name, array.dtype, shape, array.init, array.slot_bytes }
  end
  self:grid(4, 3, rows)
end

local function rope_text(rope)
  local text = "theta " .. fields.show(rope.theta)
  if not rope.factor then return text end
  return text .. (", YaRN factor %s, original %d, beta_fast %s, beta_slow %s"):format(
    fields.show(rope.factor), rope.original, fields.show(rope.beta_fast), fields.show(rope.beta_slow))
end

function writer:layer_type(T)
  self:line("\nlayer type %s: %s, %s", T.name, plural(T.layers, "layer"),
    plural(T.draft_layers, "draft layer"))
  self:line("  head_dim %d = %d nope + %d rope, window %d, ring %d, format %s", T.head_dim,
    T.nope_dim, T.rope_dim, T.window, T.ring, T.format)
  if T.ratio > 0 then
    self:line("  ratio %d%s: %s a block; tail ring of %d rows", T.ratio,
      T.overlap and " with overlap" or "", T.k == 1 and "1 entry" or T.k .. " entries", T.tail_ring)
  end
  self:line("  rope: %s", rope_text(T.rope))
  if T.indexer then
    self:line("  indexer: %d heads of %d, %d entries selected, format %s", T.indexer.heads,
      T.indexer.dim, T.indexer.topk, T.indexer.format)
  end
  for _, place in ipairs(T.places) do self:place(place) end
  self:state(T)
end

function writer:totals(M)
  self:line("\nbytes of one layer, and of all")
  local rows = { { "type", "layers", "row", "block", "window block", "request" } }
  for _, T in ipairs(M.types) do
    rows[#rows + 1] = { T.name, T.layers + T.draft_layers, T.bytes.row, T.bytes.block,
      T.bytes.window_block, T.bytes.request }
  end
  rows[#rows + 1] = { "all layers", #M.layers + #M.draft_layers, "", M.bytes.block,
    M.bytes.window_block, M.bytes.request }
  self:grid(2, 1, rows)
  self:line("  one token of context: %s bytes of compressed and index rows",
    fields.show(layout.context_bytes(M)))
end

function writer:arena(arena)
  if not arena then return end
  self:line("\nelastic arena")
  self:line("  a chunk of %d bytes is one window block or %s of %d bytes", arena.chunk_bytes,
    plural(arena.n, "envelope"), arena.envelope_bytes)
  self:line("  a request's state: %s and %s", plural(arena.state.chunks, "chunk"),
    plural(arena.state.envelopes, "envelope"))
  self:line("  a snapshot: %d bytes in %s", arena.snapshot.bytes,
    plural(arena.snapshot.envelopes, "envelope"))
end

local function as_json(M)
  local root = objects.model(M)
  root.bytes, root.arena, root.context_bytes = M.bytes, M.arena, layout.context_bytes(M)
  return json.encode(root) .. "\n"
end

-- explain(M, { json = true }) -> text
return function(M, options)
  if options and options.json then return as_json(M) end
  local self = setmetatable({ out = {} }, writer)
  self:model(M)
  for _, T in ipairs(M.types) do self:layer_type(T) end
  self:totals(M)
  self:arena(M.arena)
  return table.concat(self.out, "\n") .. "\n"
end
