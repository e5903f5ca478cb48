#!/usr/bin/env lua5.4
-- The examples resolve, and their sizes agree with arithmetic done by hand.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"
local load_spec = require "kvforge.load"

-- Rings, one scale a row: what the seed's state cache holds. Other rows are laid out by hand in
-- layout_formats_test.lua.
local function example(name)
  local path = "examples/" .. name .. ".lua"
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  local M, errors = load_spec(shell.ring(text), "@" .. path)
  if not M then error(table.concat(errors, "\n")) end
  local types = {}
  for _, T in ipairs(M.types) do types[T.name] = T end
  return M, types
end

local function array(T, name)
  for _, a in ipairs(T.state) do
    if a.name == name then return a end
  end
end

tap.plan(35)

local flash, F = example "deepseek-v4-flash"
tap.is(#flash.layers, 43, "Flash has 43 layers")
tap.is(#flash.draft_layers, 1, "and one draft layer")
tap.is(F.swa.layers .. " " .. F.csa.layers .. " " .. F.hca.layers, "2 21 20", "2 + 21 + 20 layers")
tap.is(F.swa.draft_layers, 1, "the draft layer has a window only")
tap.is(table.concat(flash.layers, " ", 1, 5), "swa swa csa hca csa", "in the published order")
tap.is(flash.layers[43], "csa", "the last layer is sparse")
tap.is(flash.types[1].name .. flash.types[2].name .. flash.types[3].name, "csahcaswa", "by name")
tap.is(F.csa.nope_dim, 448, "448 elements are not rotated")
tap.is(F.csa.k, 32, "128 / 4 entries a block")
tap.is(F.hca.k, 1, "128 / 128 entries a block")
tap.is(F.swa.k, 0, "no entries")
tap.is(F.csa.bytes.row, 448 + 128 + 4, "a row of fp8_token")
tap.is(F.csa.bytes.block, 32 * 580 + 32 * 132, "compressed and index rows of a block")
tap.is(F.hca.bytes.block, 580, "one entry")
tap.is(flash.bytes.block, 21 * 32 * (580 + 132) + 20 * 580, "a block of all layers")
tap.is(flash.bytes.window_block, 44 * 128 * 580, "a window block of all layers")

-- The seed's memory_bytes, per request: window arrays, positions, head.
local window = 128 * 448 + 128 * 64 * 2 + 128 * 4 + 128 * 4 + 4
tap.is(F.swa.bytes.request, window, "request state of a window layer, as the seed counts")
tap.is(F.hca.bytes.request, window + 2 * 128 * 512 * 4 + 4, "with one tail of 128 rows")
tap.is(F.csa.bytes.request, window + 4 * 8 * 512 * 4 + 4 + 4 * 8 * 128 * 4 + 4,
  "with two streams of 8 rows, main and indexer")
tap.is(array(F.csa, "swa_inv").init, 1, "inverse scales begin at 1")
tap.is(array(F.csa, "swa_pos").init, -1, "positions begin at -1")
tap.is(array(F.csa, "tail_za").init, 0, "scores begin at 0")
tap.is(table.concat(array(F.csa, "tail_kb").shape, "x"), "8x512", "stream b of an overlapped tail")
tap.is(array(F.hca, "tail_kb"), nil, "no stream b without overlap")

local pro, P = example "deepseek-v4-pro"
tap.is(#pro.layers, 61, "Pro has 61 layers")
tap.is(P.swa.layers .. " " .. P.csa.layers .. " " .. P.hca.layers, "0 30 31", "0 + 30 + 31 layers")
tap.is(pro.layers[1] .. pro.layers[2] .. pro.layers[3] .. pro.layers[61], "hcahcacsacsa", "order")
tap.is(P.swa.draft_layers, 1, "its draft layer has a window only")
tap.is(P.csa.indexer.topk, 1024, "it selects 1024 entries")

local _, T = example "tiny"
tap.is(T.swa.ring, 18, "a ring is the window and the drafts")
tap.is(T.csa.tail_ring, 2 * 4 + 2, "so is a tail ring")
tap.is(T.hca.tail_ring, 16 + 2, "without overlap one group less")

-- Arrays follow each other without padding: each begins at a multiple of its alignment.
for _, M in ipairs { flash, pro, (example "tiny") } do
  local good = true
  for _, type in ipairs(M.types) do
    for slots = 1, 3 do
      local at = 0
      for _, a in ipairs(type.state) do
        good = good and at % a.align == 0 and a.slot_bytes % a.align == 0
        at = at + (type.layers + type.draft_layers) * slots * a.slot_bytes
      end
    end
  end
  tap.ok(good, M.model.name .. ": state arrays pack without padding")
end
tap.done()
