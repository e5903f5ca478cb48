-- DeepSeek-V4-Flash: 43 layers and one draft layer. The first two layers and the draft layer have a
-- sliding window only; the others take turns between compressed sparse attention (one entry for four
-- tokens, 512 of them selected) and heavily compressed attention (one entry for 128 tokens).
local kv = require "kvforge"

local latent = { head_dim = 512, rope_dim = 64, window = 128, format = "fp8_ds_mla" }
local long = kv.yarn { theta = 160000, factor = 16, original = 65536, beta_fast = 32, beta_slow = 1 }

return kv.model {
  name = "deepseek-v4-flash", heads = 64, block = 128, drafts = 0, max_positions = 1048576,
  window_mode = "paged",
  targets = { "sm_90" },
  types = {
    swa = kv.layer_type { latent, ratio = 0, rope = kv.rope { theta = 10000 } },
    csa = kv.layer_type { latent, ratio = 4, rope = long, overlap = true,
                          indexer = kv.indexer { heads = 64, dim = 128, topk = 512,
                                                 format = "fp8_index" } },
    hca = kv.layer_type { latent, ratio = 128, rope = long },
  },
  layers = { kv.of("swa", 2), kv.alternate(20, "csa", "hca"), "csa" },
  draft_layers = { "swa" },
}
