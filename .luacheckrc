std = "lua54"
max_line_length = 110
codes = true
-- The kernel language's names are globals there; it reports unknown ones itself, with the line.
files["templates"] = { ignore = { "113" } }
files["tests"] = { std = "lua54", max_line_length = 130 } -- command lines and messages
files["tests/kernel_language_test.lua"] = { max_line_length = false } -- a table of cases
