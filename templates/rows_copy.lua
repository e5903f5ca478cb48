-- rows_copy: pages from one place to another, of any layer type: `bytes` of page src_ids[i] to page
-- dst_ids[i]. Block x takes pair i, block y 16 KiB of it. Pages of one launch must not overlap.
local THREADS, PER_THREAD = 256, 4
local CHUNK = 16 * THREADS * PER_THREAD

return kernel {
  name = "rows_copy",
  job = "gather or scatter pages and state: checkpoint, offload, resume, ring to workspace",
  common = true,
  block = THREADS,
  grid = { per("count"), per("bytes", CHUNK) },

  params = function() return {
    stride("bytes", 16), value("count", u32), stride("src_stride", 16), stride("dst_stride", 16),
    input("src_ids", i32, "[count]"), input("dst_ids", i32, "[count]"),
    input("src", u8, "pages of src_stride bytes", { align = 16 }),
    output("dst", u8, "pages of dst_stride bytes", { align = 16 }),
  } end,

  build = function(_, p)
    local pair = block_id("x")
    local src, dst = p.src_ids:at(pair):load(), p.dst_ids:at(pair):load()
    return_if(src:lt(0) | dst:lt(0))
    local from = p.src:bytes(src:to(u64) * p.src_stride)
    local to = p.dst:bytes(dst:to(u64) * p.dst_stride)
    for i = 0, PER_THREAD - 1 do
      local at = block_id("y"):to(u64) * CHUNK + thread_id():to(u64) * 16 + i * 16 * THREADS
      when(at:lt(p.bytes), function() to:bytes(at):as(u32):store(from:bytes(at):as(u32):load(4)) end)
    end
  end,
}
