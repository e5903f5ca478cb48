std = "lua54"
max_line_length = 110
codes = true
files["templates"] = { std = "+kernel" }
files["tests"] = { std = "lua54" }
