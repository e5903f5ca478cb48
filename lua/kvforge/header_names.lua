-- Names from a spec as identifiers of C and C++.
local names = {}

-- Words that a parameter may be called but C or C++ reserves.
local reserved = {}
for word in ([[ alignas alignof and asm auto bool break case catch char class const constexpr
  continue decltype default delete do double else enum explicit export extern false float for friend
  goto if inline int long mutable namespace new not nullptr operator or private protected public
  register restrict return short signed sizeof static struct switch template this throw true try
  typedef typeid typename union unsigned using virtual void volatile while xor ]]):gmatch("%S+") do
  reserved[word] = true
end

function names.identifier(name)
  local safe = name:gsub("[^%w]", "_")
  return reserved[safe] and safe .. "_" or safe
end

return names
