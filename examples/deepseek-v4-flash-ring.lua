-- DeepSeek-V4-Flash with the window in a ring of every request slot and one scale a row, as in the
-- first published state cache: for engines that keep no pool, and for the state cache demo.
local kv = require "kvforge"

local latent = { head_dim = 512, rope_dim = 64, window = 128, format = "fp8_token" }
local long = kv.yarn { theta = 160000, factor = 16, original = 65536, beta_fast = 32, beta_slow = 1 }

return kv.model {
  name = "deepseek-v4-flash-ring", heads = 64, block = 128, drafts = 0, max_positions = 1048576,
  window_mode = "ring",
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
