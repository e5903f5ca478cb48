-- A kernel's parameters: said once in the template, used for the PTX, the manifest and the header.
local params = { vocabulary = {} }

local bytes_of = { u32 = 4, i32 = 4, f32 = 4, u64 = 8, ptr = 8 }
local dtype_bytes = {
  u8 = 1, e4m3 = 1, ue8m0 = 1, e2m1x2 = 1, bf16 = 2, f16 = 2, f32 = 4, i32 = 4, u32 = 4, u64 = 8, i64 = 8,
}

local function pointer(direction)
  -- options: align (bytes the address is a multiple of; by default one element),
  -- nc = true: nothing writes this memory while the kernel runs, so loads may use the read-only path
  return function(name, dtype, shape, options)
    options = options or {}
    return {
      name = name, type = "ptr", direction = direction, dtype = dtype, shape = shape,
      align = options.align or dtype_bytes[dtype], nc = options.nc,
    }
  end
end

local v = params.vocabulary
v.input, v.output, v.inout = pointer("in"), pointer("out"), pointer("inout")

-- A count or another plain number.
function v.value(name, dtype) return { name = name, type = dtype, direction = "value" } end

-- Bytes from one id (or layer, or token) to the next: 64 bits, a multiple of `multiple`.
function v.stride(name, multiple)
  return { name = name, type = "u64", direction = "value", multiple = multiple }
end

-- The planes of a place: base and stride of each. `direction` is "in", "out" or "inout"; `prefix`
-- stands before their names, for a second place of the same format.
function v.planes(place, direction, prefix)
  local list = {}
  for _, plane in ipairs(place.planes) do
    local name = (prefix or "") .. plane.name
    list[#list + 1] = pointer(direction)(name, "u8", "pages of " .. plane.page_bytes .. " bytes",
      { align = plane.align })
    list[#list + 1] = v.stride(name .. "_stride", plane.align)
  end
  return list
end

-- Arrays of the state cache by name: base and slot stride, and with { layers = true } the layer stride.
function v.state(T, names, direction, options)
  local list = {}
  for _, name in ipairs(names) do
    for _, array in ipairs(T.state) do
      if array.name == name then
        local shape = { "[slots]" }
        for _, extent in ipairs(array.shape) do shape[#shape + 1] = "[" .. extent .. "]" end
        list[#list + 1] = pointer(direction)(name, array.dtype, table.concat(shape),
          { align = array.align })
        list[#list + 1] = v.stride(name .. "_stride", array.align)
        if options and options.layers then
          list[#list + 1] = v.stride(name .. "_layer_stride", array.align)
        end
      end
    end
  end
  return list
end

-- One block for every `n` of a parameter's value, rounded up; or as many blocks as its value.
function v.per(name, n) return { param = name, per = n or 1 } end
function v.constant(n) return { const = n } end

-- Parameters and lists of parameters, nil and false left out, as one list.
function params.flatten(list)
  local out = {}
  local function add(item)
    if item.name then out[#out + 1] = item else for _, inner in ipairs(item) do add(inner) end end
  end
  for i = 1, list.n or #list do if list[i] then add(list[i]) end end
  return out
end

function params.for_ir(list)
  local out = {}
  for i, p in ipairs(list) do
    local is_pointer = p.type == "ptr"
    out[i] = {
      name = p.name, type = is_pointer and "pointer" or p.type, element = p.dtype,
      multiple = is_pointer and p.align or p.multiple, readonly = p.nc, noalias = p.nc,
    }
  end
  return out
end

-- The manifest's entries and the size of all parameters, packed with natural alignment.
function params.for_manifest(list)
  local out, at, widest = {}, 0, 1
  for i, p in ipairs(list) do
    local size = bytes_of[p.type] or error("a parameter cannot be a " .. tostring(p.type))
    at = (at + size - 1) // size * size
    out[i] = {
      name = p.name, type = p.type, offset = at, direction = p.direction,
      dtype = p.dtype, shape = p.shape, align = p.align,
    }
    at, widest = at + size, math.max(widest, size)
  end
  return out, (at + widest - 1) // widest * widest
end

return params
