-- The row formats as data. Adding one means adding an entry here and a quantiser; layout.lua turns
-- an entry into offsets, and nothing else knows where a field lies.
--
-- A format is a list of planes, each with its own base and page stride. A plane's page of B rows is
-- its sections one after the other, each B records; a record is a row's fields one after the other.
--   format.rows     "latent" (nope and rope of head_dim elements) or "index" (dim elements)
--   format.scale    how the quantised field is scaled: dtype, block (elements a scale covers; a
--                   number, or the name of a size for "all of them"), kind:
--                     inverse   largest magnitude / 448 or 1, any fp32: a code times it is the value
--                     power     a power of two, as its exponent byte or as fp32
--   format.round    pages round up to the model's page_align; others are packed
--   plane.suffix    the plane is swa_<suffix>, kv_<suffix> or index_<suffix>
--   field.count     elements: a number or a size's name ("nope", "rope", "dim"), divided by `per` and
--                   times `copies`
--   field.fill      for padding: a number (the record's bytes become a multiple of it) or a size's
--                   name (they become that many)
--
-- Sources: bf16 common; fp8_token the first seed; fp8_ds_mla FlashMLA's MODEL1 and vLLM (footers of
-- eight bytes for DeepSeek); fp8_two_plane ATOM; the index formats the released indexer.
local formats = {}

-- Bits of an element. e2m1 packs two a byte, the even element in the low half.
formats.bits = {
  e2m1 = 4, e4m3 = 8, ue8m0 = 8, pad = 8, u8 = 8, bf16 = 16, f32 = 32, i32 = 32,
}

formats.bf16 = {
  rows = "latent", meaning = "head_dim bf16, unscaled",
  planes = {
    { suffix = "rows", sections = { {
      { name = "nope", dtype = "bf16", count = "nope" },
      { name = "rope", dtype = "bf16", count = "rope" },
    } } },
  },
}

formats.fp8_token = {
  rows = "latent", meaning = "three planes: e4m3 nope, bf16 rope, one fp32 inverse scale a row",
  scale = { dtype = "f32", block = "nope", kind = "inverse" },
  planes = {
    { suffix = "fp8", sections = { { { name = "nope", dtype = "e4m3", count = "nope" } } } },
    { suffix = "rope", sections = { { { name = "rope", dtype = "bf16", count = "rope" } } } },
    { suffix = "inv", sections = { { { name = "scale", dtype = "f32", count = 1 } } } },
  },
}

formats.fp8_ds_mla = {
  rows = "latent", round = true,
  meaning = "rows of e4m3 nope and bf16 rope, then footers of one ue8m0 per 64 nope",
  scale = { dtype = "ue8m0", block = 64, kind = "power" },
  planes = {
    { suffix = "rows", sections = {
      {
        { name = "nope", dtype = "e4m3", count = "nope" },
        { name = "rope", dtype = "bf16", count = "rope" },
      },
      {
        { name = "scale", dtype = "ue8m0", count = "nope", per = 64 },
        { name = "pad", dtype = "pad", fill = 8 },
      },
    } },
  },
}

formats.fp8_two_plane = {
  rows = "latent",
  meaning = "a plane of head_dim bytes (e4m3 nope, each ue8m0 twice, zeros) and a plane of bf16 rope",
  scale = { dtype = "ue8m0", block = 64, kind = "power", copies = 2 },
  planes = {
    { suffix = "fp8", sections = { {
      { name = "nope", dtype = "e4m3", count = "nope" },
      { name = "scale", dtype = "ue8m0", count = "nope", per = 64, copies = 2 },
      { name = "pad", dtype = "pad", fill = "head" },
    } } },
    { suffix = "rope", sections = { { { name = "rope", dtype = "bf16", count = "rope" } } } },
  },
}

formats.fp8_index = {
  rows = "index", round = true, meaning = "B times e4m3 codes, then B times one fp32 scale",
  scale = { dtype = "f32", block = "dim", kind = "power" },
  planes = {
    { suffix = "rows", sections = {
      { { name = "codes", dtype = "e4m3", count = "dim" } },
      { { name = "scale", dtype = "f32", count = 1 } },
    } },
  },
}

formats.fp4_index = {
  rows = "index", round = true, meaning = "B times packed e2m1 codes, then B times ue8m0 per 32",
  scale = { dtype = "ue8m0", block = 32, kind = "power" },
  planes = {
    { suffix = "rows", sections = {
      { { name = "codes", dtype = "e2m1", count = "dim" } },
      { { name = "scale", dtype = "ue8m0", count = "dim", per = 32 } },
    } },
  },
}

-- The names of the formats of "latent" or "index" rows, in alphabetical order.
function formats.names(rows)
  local names = {}
  for name, format in pairs(formats) do
    if type(format) == "table" and format.rows == rows then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

return formats
