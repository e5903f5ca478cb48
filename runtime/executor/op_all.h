/* Every file of operations, for a compilation with another instruction set. */
#include "op_control.c"
#include "op_convert.c"
#include "op_float.c"
#include "op_integer.c"
#include "op_memory.c"
#include "op_move.c"
#include "op_warp.c"
