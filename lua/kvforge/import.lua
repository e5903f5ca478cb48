-- A spec from the config.json that a DeepSeek-V4 checkpoint is published with.
--
--   local text, notes = require("kvforge.import")(json_text, "config.json", flags)
--
-- flags  name, format, index_format, window_mode (texts), targets (array); each may be left out
-- text   the spec; nil if the config cannot be taken over: then the second result is an array of
--        "config.json:line: field: what is wrong" texts, all of them
-- notes  array of texts: fields that were not understood, and what was assumed
--
-- What the config says about attention is taken over or refused, never guessed: fields that are known
-- to have nothing to do with it are passed over, all others are named in the notes.
local fields = require "kvforge.fields"
local json = require "kvforge.json"
local load_spec = require "kvforge.load"
local nearest = require "kvforge.nearest"

local DEFAULTS = { format = "fp8_ds_mla", index_format = "fp8_index", window_mode = "paged" }

-- A layer of this ratio overlaps its groups and has an indexer; all other ratios do neither. It is
-- the family's rule; the config does not say it.
local OVERLAPPED_RATIO = 4

local function words(text)
  local set = {}
  for word in text:gmatch("%S+") do set[word] = true end
  return set
end

local used = words [[
  architectures compress_ratios compress_rope_theta dtype head_dim index_head_dim index_n_heads
  index_topk max_position_embeddings model_type num_attention_heads num_hidden_layers
  num_key_value_heads num_nextn_predict_layers qk_nope_head_dim qk_rope_head_dim rms_norm_eps
  rope_parameters rope_scaling rope_theta sliding_window torch_dtype v_head_dim
]]

-- Of a checkpoint, but not of its KV cache.
local elsewhere = words [[
  _name_or_path attention_bias attention_dropout auto_map aux_loss_alpha bos_token_id eos_token_id
  ep_size expert_dtype first_k_dense_replace hc_eps hc_mult hc_sinkhorn_iters hidden_act hidden_size
  initializer_range intermediate_size mlp_bias moe_intermediate_size moe_layer_freq n_group
  n_routed_experts n_shared_experts norm_topk_prob num_experts_per_tok num_hash_layers o_groups
  o_lora_rank pad_token_id pretraining_tp q_lora_rank quantization_config router_aux_loss_coef
  routed_scaling_factor scoring_func seq_aux swiglu_limit tie_word_embeddings topk_group topk_method
  transformers_version use_cache vocab_size
]]

-- Fields that change what a layer stores in a way a spec cannot say.
local refused = {
  kv_source_layer_ids = "layers that read another layer's rows",
  index_source_layer_ids = "layers that read another layer's index rows",
  candidate_source_layer_id = "a candidate filter before the selection",
  candidate_topk_blocks = "a candidate filter before the selection",
  candidate_block_size = "a candidate filter before the selection",
}

local importer = {}
importer.__index = importer

function importer:problem(object, field, rule, given, allowed)
  local line = self.lines[object] and self.lines[object][field]
  local text = ("%s:%sfield \"%s\": %s"):format(self.file, line and line .. ": " or " ", field, rule)
  if given ~= nil then text = text .. "; given " .. (given == json.null and "null" or fields.show(given)) end
  if allowed then text = text .. (given ~= nil and ", allowed " or "; allowed ") .. allowed end
  self.problems[#self.problems + 1] = { line = line or 0, order = #self.problems, text = text }
end

function importer:note(text, ...)
  self.notes[#self.notes + 1] = text:format(...)
end

-- A field as the spec's field (level, name) has it; absent and not needed: nil.
function importer:get(object, name, level, spec_name, needed)
  local value = object[name]
  local field = fields.find(level, spec_name)
  if value == nil or value == json.null then
    if needed then self:problem(object, name, "is missing", nil, fields.allowed(field)) end
    return nil
  end
  local checked, rule = fields.check(field, value)
  if rule then self:problem(object, name, rule, value, fields.allowed(field)) end
  return checked
end

-- A field that must be a whole number of at least `least`.
function importer:count(object, name, least, needed)
  local value = object[name]
  if value == nil or value == json.null then
    if needed then self:problem(object, name, "is missing") end
    return nil
  end
  if math.type(value) ~= "integer" or value < least or value > 4096 then
    self:problem(object, name, "must be a whole number", value, ("%d to 4096"):format(least))
    return nil
  end
  return value
end

-- Two statements of the same thing must agree.
function importer:agree(name, value, what, want)
  local given = self.config[name]
  if given ~= nil and given ~= json.null and value ~= nil and want ~= nil and given ~= want then
    self:problem(self.config, name, "contradicts " .. what, given, fields.show(want))
  end
end

local function sorted(set)
  local keys = {}
  for key in pairs(set) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

-- ---- reading ----

function importer:unknown_fields()
  for _, name in ipairs(sorted(self.config)) do
    if refused[name] then
      self:problem(self.config, name, "says " .. refused[name] .. ", which a spec cannot express")
    elseif not used[name] and not elsewhere[name] then
      local near = nearest(name, sorted(used))
      near = near and self.config[near] == nil and (" (did you mean \"%s\"?)"):format(near) or ""
      self:note("field \"%s\" is not known and was passed over%s", name, near)
    end
  end
end

function importer:family()
  local config = self.config
  if config.model_type ~= "deepseek_v4" then
    self:problem(config, "model_type", config.model_type == nil and "is missing" or "is of another family",
      config.model_type, "\"deepseek_v4\"")
  end
  if config.num_key_value_heads ~= nil and config.num_key_value_heads ~= 1 then
    self:problem(config, "num_key_value_heads", "all heads must share one latent row",
      config.num_key_value_heads, "1")
  end
  local names = config.architectures
  if names == nil or names == json.null then return end
  for _, name in ipairs(type(names) == "table" and names or { names }) do
    if type(name) ~= "string" or not name:find("^Deep[Ss]eekV4") then
      self:problem(config, "architectures", "contradicts model_type", name, "\"DeepseekV4ForCausalLM\"")
    end
  end
end

-- Of a field that later files spell in another way: the name that is there, the older if both are.
function importer:spelling(older, newer)
  local there = self.config[older]
  return (there ~= nil and there ~= json.null or self.config[newer] == nil) and older or newer
end

function importer:dtype()
  local dtypes = { bfloat16 = "bf16", float32 = "f32" }
  local name = self:spelling("torch_dtype", "dtype")
  local given = self.config[name]
  if given == nil or given == json.null then return "bf16" end
  if not dtypes[given] then
    self:problem(self.config, name, "is no type that latents can have", given, "\"bfloat16\", \"float32\"")
  elseif name == "torch_dtype" then
    self:agree("dtype", given, "torch_dtype", given)
  end
  return dtypes[given]
end

-- The ratio of every layer, draft layers last, and the number of layers that are not drafts.
function importer:ratios()
  local config, list = self.config, self.config.compress_ratios
  local layers = self:count(config, "num_hidden_layers", 1, true)
  local drafts = self:count(config, "num_nextn_predict_layers", 0, false)
  if type(list) ~= "table" or #list == 0 then
    self:problem(config, "compress_ratios", list == nil and "is missing" or "must be a list", list)
    return {}, 0
  end
  local ratio = fields.find("layer type", "ratio")
  for i, value in ipairs(list) do
    local checked, rule = fields.check(ratio, value)
    if rule or checked == 1 then
      self:problem(config, "compress_ratios", ("entry %d %s"):format(i, rule or "is no group"), value,
        "0, or 2 to 256")
      return {}, 0
    end
  end
  if layers and #list < layers then
    self:problem(config, "compress_ratios", ("has %d entries, but num_hidden_layers says %d"):format(#list,
      layers))
  elseif layers and drafts and #list - layers < drafts then
    self:problem(config, "num_nextn_predict_layers",
      ("compress_ratios has %d entries beyond num_hidden_layers"):format(#list - layers), drafts)
  elseif layers and drafts and #list - layers > drafts then
    self:note("num_nextn_predict_layers says %d, compress_ratios has %d draft layers: took the latter",
      drafts, #list - layers)
  end
  return list, layers or 0
end

-- kv.yarn's fields from rope_scaling or rope_parameters; false without them.
function importer:yarn()
  local name = self:spelling("rope_scaling", "rope_parameters")
  local scaling, other = self.config[name], self.config.rope_parameters
  if scaling == nil or scaling == json.null then return false end
  if name == "rope_scaling" and other ~= nil and other ~= json.null
    and json.encode(other) ~= json.encode(scaling) then
    self:problem(self.config, "rope_parameters", "contradicts rope_scaling")
  end
  if type(scaling) ~= "table" then
    self:problem(self.config, name, "must be an object", scaling)
    return false
  end
  local known = words "type rope_type factor original_max_position_embeddings beta_fast beta_slow"
  for _, key in ipairs(sorted(scaling)) do
    if not known[key] then self:problem(scaling, key, "of " .. name .. " is not known") end
  end
  local kind = scaling.type or scaling.rope_type
  if kind ~= "yarn" or (scaling.rope_type or kind) ~= kind then
    self:problem(scaling, scaling.type and "type" or "rope_type", "must say one known scaling",
      kind or "nothing", "\"yarn\"")
  end
  return {
    factor = self:get(scaling, "factor", "rope", "factor", true),
    original = self:get(scaling, "original_max_position_embeddings", "rope", "original", true),
    beta_fast = self:get(scaling, "beta_fast", "rope", "beta_fast", false),
    beta_slow = self:get(scaling, "beta_slow", "rope", "beta_slow", false),
  }
end

function importer:read()
  local config = self.config
  self:unknown_fields()
  self:family()
  local got = { ratios = {}, input_dtype = self:dtype() }
  got.ratios, got.layers = self:ratios()
  local present = {}
  for _, ratio in ipairs(got.ratios) do present[ratio] = true end
  got.kinds = sorted(present)
  local compressed = #got.kinds > 0 and got.kinds[#got.kinds] > 0
  got.heads = self:get(config, "num_attention_heads", "model", "heads", true)
  got.max_positions = self:get(config, "max_position_embeddings", "model", "max_positions", true)
  got.norm_eps = self:get(config, "rms_norm_eps", "model", "norm_eps", true)
  got.head_dim = self:get(config, "head_dim", "layer type", "head_dim", true)
  got.rope_dim = self:get(config, "qk_rope_head_dim", "layer type", "rope_dim", true)
  got.window = self:get(config, "sliding_window", "layer type", "window", true)
  got.theta = self:get(config, "rope_theta", "rope", "theta", present[0] or false)
  got.long_theta = self:get(config, "compress_rope_theta", "rope", "theta", compressed)
  got.yarn = self:yarn()
  local indexed = present[OVERLAPPED_RATIO] or false
  got.index_heads = self:get(config, "index_n_heads", "indexer", "heads", indexed)
  got.index_dim = self:get(config, "index_head_dim", "indexer", "dim", indexed)
  got.topk = self:get(config, "index_topk", "indexer", "topk", indexed)
  self:agree("v_head_dim", got.head_dim, "head_dim: keys and values are one row", got.head_dim)
  if got.head_dim and got.rope_dim then
    self:agree("qk_nope_head_dim", got.rope_dim, "head_dim - qk_rope_head_dim",
      got.head_dim - got.rope_dim)
  end
  return got
end

-- ---- writing ----

local function literal(value)
  if type(value) == "string" then return fields.show(value) end
  return json.number(value)
end

local function type_name(ratio, kinds)
  if ratio == 0 then return "swa" end
  if ratio == OVERLAPPED_RATIO then return "csa" end
  local plain = 0
  for _, kind in ipairs(kinds) do
    if kind ~= 0 and kind ~= OVERLAPPED_RATIO then plain = plain + 1 end
  end
  return (plain == 1 or ratio == 128) and "hca" or "c" .. ratio
end

-- Lengths of the runs that start at i: of one name, and of pairs of names.
local function runs(names, i, last)
  local same, pairs_of = 1, 1
  while i + same <= last and names[i + same] == names[i] do same = same + 1 end
  while i + 2 * pairs_of + 1 <= last and names[i + 2 * pairs_of] == names[i]
    and names[i + 2 * pairs_of + 1] == names[i + 1] do
    pairs_of = pairs_of + 1
  end
  return same, pairs_of
end

-- Layers as a spec writes them: runs as kv.of, alternations as kv.alternate.
local function layer_list(names, first, last)
  local parts, i = {}, first
  while i <= last do
    local same, pairs_of = runs(names, i, last)
    if same >= 2 then
      parts[#parts + 1] = ("kv.of(%q, %d)"):format(names[i], same)
      i = i + same
    elseif pairs_of >= 2 then
      parts[#parts + 1] = ("kv.alternate(%d, %q, %q)"):format(pairs_of, names[i], names[i + 1])
      i = i + 2 * pairs_of
    else
      parts[#parts + 1] = ("%q"):format(names[i])
      i = i + 1
    end
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

local function long_rope(got)
  if not got.yarn then return ("kv.rope { theta = %s }"):format(literal(got.long_theta)) end
  local parts = { "theta = " .. literal(got.long_theta) }
  for _, name in ipairs { "factor", "original", "beta_fast", "beta_slow" } do
    if got.yarn[name] then parts[#parts + 1] = name .. " = " .. literal(got.yarn[name]) end
  end
  return "kv.yarn { " .. table.concat(parts, ", ") .. " }"
end

local function type_text(ratio, got, flags)
  local parts = { "latent", ("ratio = %d"):format(ratio) }
  parts[3] = "rope = " .. (ratio == 0 and ("kv.rope { theta = %s }"):format(literal(got.theta)) or "long")
  if ratio == OVERLAPPED_RATIO then
    parts[4] = "overlap = true"
    parts[5] = ("\n      indexer = kv.indexer { heads = %d, dim = %d, topk = %d, format = %q }"):format(
      got.index_heads, got.index_dim, got.topk, flags.index_format)
  end
  return ("    %s = kv.layer_type { %s },"):format(type_name(ratio, got.kinds),
    (table.concat(parts, ", "):gsub(" \n", "\n")))
end

-- The smaller block that every ratio divides; if neither does, the check of the spec says so.
local function block_of(kinds)
  for _, ratio in ipairs(kinds) do
    if ratio > 0 and 128 % ratio ~= 0 and 256 % ratio == 0 then return 256 end
  end
  return 128
end

local function targets_text(targets)
  local quoted = {}
  for i, target in ipairs(targets) do quoted[i] = fields.show(target) end
  return "{ " .. table.concat(quoted, ", ") .. " }"
end

local function spec_text(got, flags, file, notes)
  local out, names = {}, {}
  local function line(text, ...) out[#out + 1] = select("#", ...) > 0 and text:format(...) or text end
  for i, ratio in ipairs(got.ratios) do names[i] = type_name(ratio, got.kinds) end
  line("-- Written by `kvforge import` from %s.", file:match("[^/]*$"):gsub("%c", "?"))
  for _, note in ipairs(notes) do line("-- Note: " .. note:gsub("%c", "?")) end
  line('local kv = require "kvforge"\n')
  line("local latent = { head_dim = %d, rope_dim = %d, window = %d, format = %s }", got.head_dim,
    got.rope_dim, got.window, fields.show(flags.format))
  if got.long_theta then line("local long = %s", long_rope(got)) end
  line("\nreturn kv.model {")
  line("  name = %s, heads = %d, block = %d, max_positions = %d,", fields.show(flags.name), got.heads,
    block_of(got.kinds), got.max_positions)
  line("  norm_eps = %s, input_dtype = %s, window_mode = %s,", literal(got.norm_eps),
    fields.show(got.input_dtype), fields.show(flags.window_mode))
  if flags.targets then line("  targets = %s,", targets_text(flags.targets)) end
  line("  types = {")
  for _, ratio in ipairs(got.kinds) do line("%s", type_text(ratio, got, flags)) end
  line("  },")
  line("  layers = %s,", layer_list(names, 1, got.layers))
  if #names > got.layers then
    line("  draft_layers = %s,", layer_list(names, got.layers + 1, #names))
  end
  line("}")
  return table.concat(out, "\n") .. "\n"
end

-- ---- flags ----

local flag_fields = {
  name = { "model", "name" }, format = { "layer type", "format" },
  window_mode = { "model", "window_mode" }, index_format = { "indexer", "format" },
}

function importer:flags(given)
  local flags = { name = "deepseek-v4", targets = given.targets }
  for name, value in pairs(DEFAULTS) do flags[name] = value end
  for _, name in ipairs(sorted(flag_fields)) do
    if given[name] ~= nil then
      local field = fields.find(table.unpack(flag_fields[name]))
      local value, rule = fields.check(field, given[name])
      if rule then
        self.problems[#self.problems + 1] = {
          line = -1, order = #self.problems,
          text = ("--%s: %s; given %s, allowed %s"):format(name:gsub("_", "-"), rule,
            fields.show(given[name]), fields.allowed(field)),
        }
      end
      flags[name] = value
    end
  end
  return flags
end

-- The errors in order of line, then the notes: an unknown field may be a missing one, misspelt.
function importer:errors()
  table.sort(self.problems, function(a, b)
    if a.line ~= b.line then return a.line < b.line end
    return a.order < b.order
  end)
  local texts = {}
  for i, problem in ipairs(self.problems) do texts[i] = problem.text end
  for _, note in ipairs(self.notes) do texts[#texts + 1] = ("%s: note: %s"):format(self.file, note) end
  return texts
end

--[[
import(text, chunkname, flags, judge) -> the spec's text and notes, or nil and errors

flags  name, format, index_format, window_mode, targets, each as its option has it
judge  judge(M, file) -> "file:line: ..." texts about what cannot be built of a model; nil: not asked
]]
return function(text, chunkname, flags, judge)
  local file = chunkname:gsub("^@", "")
  local config, lines = json.decode(text)
  if config == nil then return nil, { ("%s: %s"):format(file, lines) } end
  if type(config) ~= "table" or not lines[config] then
    return nil, { ("%s: must be a JSON object"):format(file) }
  end
  local self = setmetatable({
    file = file, config = config, lines = lines, problems = {}, notes = {},
  }, importer)
  local chosen = self:flags(flags or {})
  local got = self:read()
  if #self.problems > 0 then return nil, self:errors() end

  -- What the rules between fields refuse is an error of the config, not of a file nobody wrote.
  local spec = spec_text(got, chosen, file, self.notes)
  local M, errors = load_spec(spec, "@spec")
  if M then errors = judge and judge(M, "spec") or {} end
  if #errors == 0 then return spec, self.notes end
  for i, message in ipairs(errors) do errors[i] = message:gsub("^spec:%d+:", file .. ":") end
  return nil, errors
end
