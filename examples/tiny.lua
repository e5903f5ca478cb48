-- A model small enough for fast tests: every kind of layer, rows a quarter of DeepSeek's, a short
-- window, and ratios small enough that a few dozen tokens complete many groups. The block stays 128,
-- as everywhere: rows of a block and what one compresses to are then tested at their real sizes.
local kv = require "kvforge"

local latent = { head_dim = 128, rope_dim = 64, window = 16, format = "fp8_ds_mla" }

return kv.model {
  name = "tiny", heads = 8, block = 128, drafts = 2, max_positions = 4096,
  window_mode = "paged",
  targets = { "sm_90" },
  types = {
    swa = kv.layer_type { latent, ratio = 0, rope = kv.rope { theta = 10000 } },
    csa = kv.layer_type { latent, ratio = 4, rope = kv.rope { theta = 10000 }, overlap = true,
                          indexer = kv.indexer { heads = 4, dim = 64, topk = 8,
                                                 format = "fp8_index" } },
    hca = kv.layer_type { latent, ratio = 16,
                          rope = kv.yarn { theta = 10000, factor = 4, original = 1024 } },
  },
  layers = { "swa", "csa", "hca" },
  draft_layers = { "swa" },
}
