/* Where the executor's libcuda.so.1 lies. Internal. */
#ifndef KVF_EXECUTOR_PATH_H
#define KVF_EXECUTOR_PATH_H

#include "kvforge.h"

/* A symbol that only the executor exports. */
#define EXECUTOR_MARK "kvfExecutorStats"

/*
 * Find the executor and return its path in malloc'ed memory. Looked for, in this order: relative to
 * the directory of the object that holds this code (the shared library, or the program it is linked
 * into): ../executor (a build tree), ../lib/kvforge and kvforge (installed); then the file that the
 * environment variable KVF_EXECUTOR names, unless the program runs with raised privileges.
 * KVF_ERROR_NO_DRIVER where there is none; the text names every place.
 */
kvf_status executor_path(char **out, kvf_error *error);

#endif
