-- A slice of DeepSeek-V4-Flash for the whole-step demo: Flash's rows, ratios, window and indexer dim, but
-- 16 query heads (what one of four ranks has), few layers, and an indexer that selects 64 entries, so
-- that prompts of a few hundred tokens reach every case. Rows lie in window blocks and block
-- envelopes of a pool; two drafts a step; a later request can resume at every block. Tails are bf16,
-- so that a chunk holds an HCA layer's: four layers' window blocks are few bytes.
local kv = require "kvforge"

local latent = { head_dim = 512, rope_dim = 64, window = 128, format = "fp8_ds_mla" }
local long = kv.yarn { theta = 160000, factor = 16, original = 65536, beta_fast = 32, beta_slow = 1 }

return kv.model {
  name = "flash-narrow", heads = 16, block = 128, drafts = 2, max_positions = 4096,
  window_mode = "paged", state_dtype = "bf16", checkpoint = 128, split_rows = 128,
  targets = { "sm_90" },
  types = {
    swa = kv.layer_type { latent, ratio = 0, rope = kv.rope { theta = 10000 } },
    csa = kv.layer_type { latent, ratio = 4, rope = long, overlap = true,
                          indexer = kv.indexer { heads = 16, dim = 128, topk = 64,
                                                 format = "fp8_index" } },
    hca = kv.layer_type { latent, ratio = 128, rope = long },
  },
  layers = { "swa", "csa", "hca", "csa" },
}
