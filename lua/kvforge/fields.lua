-- Every field of the spec language, once. Validation, `kvforge help spec` and the manual read it.
--
-- One record per field:
--   level    "model", "layer type", "rope" (kv.rope and kv.yarn), "indexer"
--   name     the key in the spec's table
--   type     "integer", "number", "boolean", "text", "choice", or what a constructor makes:
--            "list" (of names), "types", "layers", "rope", "indexer"
--   min,max  inclusive range of an integer or number; positive = true: above zero
--   multiple the value must be a multiple of this
--   power    the value must be a power of two
--   values   what a "choice" or the entries of a "list" may be
--   default  the value where the spec gives none; required = true: the spec must give one
--   yarn     true: only kv.yarn has the field
--   unit     what is counted, for people
--   meaning  one line, for people
--   why      the reason of a limit, where it is not plain
local formats = require "kvforge.formats"

local fields = {}

fields.list = {
  -- ---- model ----
  { level = "model", name = "name", type = "text", required = true,
    meaning = "the model's name; names the bundle's files and the header's identifiers" },
  { level = "model", name = "heads", type = "integer", min = 1, max = 256, required = true,
    unit = "query heads", meaning = "query heads of a layer; all share one latent row" },
  { level = "model", name = "block", type = "integer", values = { 128, 256 }, default = 128,
    unit = "token positions", meaning = "consecutive positions of one sequence in a block" },
  { level = "model", name = "drafts", type = "integer", min = 0, max = 64, default = 0,
    unit = "tokens", meaning = "tokens a step may write that can be rejected later" },
  { level = "model", name = "max_positions", type = "integer", min = 1, max = 1 << 30,
    required = true, unit = "token positions", meaning = "the longest sequence" },
  { level = "model", name = "targets", type = "list", default = { "sm_90" },
    values = { "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a" },
    meaning = "chips to generate code for" },
  { level = "model", name = "types", type = "types", required = true,
    meaning = "the layer types by name, each made by kv.layer_type" },
  { level = "model", name = "layers", type = "layers", required = true,
    meaning = "the type of each layer in order: names, kv.of(name, n), kv.alternate(n, name, ...)" },
  { level = "model", name = "draft_layers", type = "layers", default = {},
    meaning = "the type of each draft (multi-token prediction) layer" },
  { level = "model", name = "window_mode", type = "choice", values = { "ring", "paged" },
    default = "ring",
    meaning = "window rows lie in a ring per request slot, or in window blocks of a pool" },
  { level = "model", name = "input_dtype", type = "choice", values = { "bf16", "f32" },
    default = "bf16", meaning = "element type of the latents, values and scores that come in" },
  { level = "model", name = "state_dtype", type = "choice", values = { "f32", "bf16" },
    default = "f32", meaning = "element type of the tails" },
  { level = "model", name = "kv_norm", type = "boolean", default = true,
    meaning = "a latent passes RMSNorm before RoPE" },
  { level = "model", name = "norm_eps", type = "number", min = 0, max = 1, default = 1e-6,
    meaning = "epsilon of every RMSNorm" },
  { level = "model", name = "ape_on_write", type = "boolean", default = true,
    meaning = "the position bias is added to scores when they enter a tail, not when they are read" },
  { level = "model", name = "round_before_norm", type = "boolean", default = true,
    meaning = "a compressed value is rounded to bf16 before its RMSNorm" },
  { level = "model", name = "round_before_rope", type = "boolean", default = true,
    meaning = "a value is rounded to bf16 between RMSNorm and RoPE" },
  { level = "model", name = "hadamard", type = "boolean", default = true,
    meaning = "index keys and index queries pass a Walsh-Hadamard transform before quantisation" },
  { level = "model", name = "online", type = "boolean", default = false,
    meaning = "compressors without overlap keep a running softmax instead of a tail of rows" },
  { level = "model", name = "page_align", type = "integer", min = 16, max = 65536, multiple = 16,
    default = 32, unit = "bytes",
    why = "every row starts on a 16-byte boundary; 32 is one memory sector, FlashMLA wants 576",
    meaning = "what pages of formats with footers round up to" },
  { level = "model", name = "split_rows", type = "integer", min = 64, max = 65536, multiple = 64,
    default = 512, unit = "rows", meaning = "rows of a token's list that one part of attention reads" },
  { level = "model", name = "packed_lists", type = "boolean", default = false,
    meaning = "also the kernels that write row lists in the published pool's packed form" },
  { level = "model", name = "checkpoint", type = "integer", min = 128, max = 1 << 20,
    multiple = 128, default = 512, unit = "token positions",
    meaning = "positions between the places where a later request can resume" },

  -- ---- layer type ----
  { level = "layer type", name = "head_dim", type = "integer", min = 64, max = 1024, power = true,
    required = true, unit = "elements",
    why = "a warp must divide a row into whole 16-byte vectors",
    meaning = "elements of a row: nope and rope together" },
  { level = "layer type", name = "rope_dim", type = "integer", min = 2, max = 1022, multiple = 2,
    required = true, unit = "elements", why = "RoPE turns pairs of elements",
    meaning = "the last elements of a row, which RoPE rotates; nope is the rest" },
  { level = "layer type", name = "window", type = "integer", min = 1, max = 8192, required = true,
    unit = "token positions", meaning = "the last tokens that attention reads one by one" },
  { level = "layer type", name = "ratio", type = "integer", min = 0, max = 256, required = true,
    unit = "tokens", meaning = "tokens of one compressed entry; 0: nothing is compressed" },
  { level = "layer type", name = "overlap", type = "boolean", default = false,
    meaning = "an entry also reads the group before its own, through a second projection" },
  { level = "layer type", name = "format", type = "choice", required = true,
    values = formats.names "latent",
    meaning = "how window rows and compressed rows are stored" },
  { level = "layer type", name = "rope", type = "rope", required = true,
    meaning = "the rotation's frequencies, made by kv.rope or kv.yarn" },
  { level = "layer type", name = "indexer", type = "indexer",
    meaning = "selects the entries a token reads, made by kv.indexer; without one it reads all" },

  -- ---- rope ----
  { level = "rope", name = "theta", type = "number", min = 2, max = 1e12, required = true,
    meaning = "base of the frequencies theta^(-2i/rope_dim)" },
  { level = "rope", name = "factor", type = "number", min = 1, max = 1e6, required = true,
    yarn = true, meaning = "YaRN: low frequencies are divided by this" },
  { level = "rope", name = "original", type = "integer", min = 1, max = 1 << 30, required = true,
    yarn = true, unit = "token positions", meaning = "YaRN: the context length of pretraining" },
  { level = "rope", name = "beta_fast", type = "number", min = 1e-6, max = 1e6,
    default = 32, yarn = true, unit = "turns",
    meaning = "YaRN: frequencies above this many turns over `original` stay" },
  { level = "rope", name = "beta_slow", type = "number", min = 1e-6, max = 1e6,
    default = 1, yarn = true, unit = "turns",
    meaning = "YaRN: frequencies below this many turns over `original` are divided" },

  -- ---- indexer ----
  { level = "indexer", name = "heads", type = "integer", min = 1, max = 256, required = true,
    unit = "query heads", meaning = "heads of the index query" },
  { level = "indexer", name = "dim", type = "integer", min = 32, max = 256, power = true,
    required = true, unit = "elements", why = "the Hadamard transform needs a power of two",
    meaning = "elements of an index key" },
  { level = "indexer", name = "topk", type = "integer", min = 1, max = 2048, required = true,
    unit = "entries", meaning = "entries a token selects" },
  { level = "indexer", name = "format", type = "choice", values = formats.names "index",
    default = "fp8_index", meaning = "how index rows are stored" },
}

-- The rules between fields, for people; check.lua and layout.lua enforce them.
fields.rules = {
  "rope_dim is below head_dim; nope (head_dim - rope_dim) and rope fill whole 16-byte vectors",
  "nope is a multiple of the format's scale block: 64 for fp8_ds_mla and fp8_two_plane",
  "fp8_two_plane keeps codes and scales of a row within head_dim bytes",
  "the block is a multiple of every ratio, and checkpoint a multiple of the block",
  "overlap and an indexer need a ratio",
  "an indexer's dim holds rope_dim elements, and is a multiple of 32 for fp4_index",
  "a window does not exceed max_positions",
  "packed_lists needs window_mode paged: the packed form has window blocks",
  "online needs drafts = 0: a running softmax cannot give a rejected token back",
  "online changes compressors without overlap only, and makes their state f32; overlapped ones keep rows",
}

-- fields.of(level): its records in order; fields.find(level, name): one record, or nil.
function fields.of(level)
  local found = {}
  for _, field in ipairs(fields.list) do
    if field.level == level then found[#found + 1] = field end
  end
  return found
end

function fields.find(level, name)
  for _, field in ipairs(fields.list) do
    if field.level == level and field.name == name then return field end
  end
end

local function is_number(field)
  return field.type == "integer" or field.type == "number"
end

local function range_text(field)
  local number = field.type == "integer" and "%d" or "%g"
  local low, high = number:format(field.min), number:format(field.max)
  if field.power then return ("powers of two from %s to %s"):format(low, high) end
  if field.multiple then
    return ("multiples of %d from %s to %s"):format(field.multiple, low, high)
  end
  local noun = field.type == "integer" and "integers" or "numbers"
  return ("%s %s %s to %s"):format(noun, field.positive and "above" or "from", low, high)
end

local made_by = {
  types = "a table { name = kv.layer_type { ... } }", rope = "kv.rope or kv.yarn",
  layers = "a list of type names, kv.of(name, n) and kv.alternate(n, name, ...)",
  indexer = "kv.indexer { ... }", boolean = "true or false",
  text = "1 to 64 of a-z A-Z 0-9 . _ -, a letter first",
}

-- What a field may be, for people.
function fields.allowed(field)
  if field.values then
    local values = table.concat(field.values, ", ")
    return field.type == "list" and "a list of " .. values or values
  end
  return is_number(field) and range_text(field) or made_by[field.type]
end

-- A value for people: short, one line, the same on every machine.
function fields.show(value)
  if type(value) == "string" then
    local text = #value > 40 and value:sub(1, 37) .. "..." or value
    return '"' .. text:gsub("[%c\"\\]", function(c) return ("\\%d"):format(c:byte()) end) .. '"'
  elseif math.type(value) == "integer" then
    return ("%d"):format(value)
  elseif type(value) == "number" then
    if value ~= value then return "nan" end
    return (("%.14g"):format(value):gsub(",", "."))
  elseif type(value) == "boolean" or value == nil then
    return value == nil and "nothing" or tostring(value)
  end
  return "a " .. type(value)
end

local function check_number(field, value)
  if type(value) ~= "number" then return nil, "must be a number" end
  if value ~= value or value == math.huge or value == -math.huge then
    return nil, "must be finite"
  end
  -- A whole number is kept as an integer however it was written, so that equal specs are equal.
  local whole = math.tointeger(value)
  if field.type == "integer" and not whole then return nil, "must be whole" end
  if field.values then
    for _, allowed in ipairs(field.values) do
      if whole == allowed then return whole end
    end
    return nil, "is not among the values"
  end
  if value < field.min or field.positive and value == field.min then return nil, "is too small" end
  if value > field.max then return nil, "is too large" end
  if field.power and whole & (whole - 1) ~= 0 then
    return nil, "must be a power of two" .. (field.why and ": " .. field.why or "")
  end
  if field.multiple and whole % field.multiple ~= 0 then
    local rule = field.multiple == 2 and "must be even"
      or ("must be a multiple of %d"):format(field.multiple)
    return nil, rule .. (field.why and ": " .. field.why or "")
  end
  return whole or value
end

local function check_text(value)
  if type(value) ~= "string" then return nil, "must be a string" end
  if #value > 64 or not value:match("^[A-Za-z][A-Za-z0-9._-]*$") then
    return nil, "is not a name"
  end
  return value
end

local function check_choice(field, value)
  for _, allowed in ipairs(field.values) do
    if rawequal(value, allowed) then return value end
  end
  return nil, type(value) == "string" and "is not among the values" or "must be a string"
end

-- Check a scalar: returns the value as it is kept, or nil and the rule it breaks.
function fields.check(field, value)
  if is_number(field) then return check_number(field, value) end
  if field.type == "text" then return check_text(value) end
  if field.type == "choice" then return check_choice(field, value) end
  if type(value) ~= "boolean" then return nil, "must be true or false" end
  return value
end

return fields
