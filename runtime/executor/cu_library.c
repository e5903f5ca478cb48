/* Libraries: modules without a context, and kernels: functions of one. */
#include "driver.h"

CU_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *options,
                                     void **values, unsigned count, int *library_options,
                                     void **library_values, unsigned library_count);
CU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *options,
                                         void **values, unsigned count, int *library_options,
                                         void **library_values, unsigned library_count);
CU_EXPORT CUresult cuLibraryUnload(CUlibrary library);
CU_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned room, CUlibrary library);
CU_EXPORT CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel);
CU_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CU_EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library);
CU_EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library);
CU_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                      const char *name);
CU_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CU_EXPORT CUresult cuKernelGetName(const char **name, CUkernel kernel);

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *options, void **values,
                           unsigned count, int *library_options, void **library_values,
                           unsigned library_count) {
    (void)library_options;
    (void)library_values;
    (void)library_count;
    ENTER("cuLibraryLoadData");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(module_load(code, options, values, count, true, (struct CUmod_st **)library));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *options, void **values,
                               unsigned count, int *library_options, void **library_values,
                               unsigned library_count) {
    (void)library_options;
    (void)library_values;
    (void)library_count;
    ENTER("cuLibraryLoadFromFile");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(module_load_file(path, options, values, count, true, (struct CUmod_st **)library));
}

CUresult cuLibraryUnload(CUlibrary library) {
    ENTER("cuLibraryUnload");
    struct CUmod_st *module = (struct CUmod_st *)library;
    if (!module_valid(module) || !module->library) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(module_unload(module));
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    ENTER("cuLibraryGetKernel");
    if (!kernel || !name) DONE(CUDA_ERROR_INVALID_VALUE);
    struct CUmod_st *module = (struct CUmod_st *)library;
    if (!module_valid(module)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct CUfunc_st *found = function_find(module, name);
    if (!found) DONE(CUDA_ERROR_NOT_FOUND);
    *kernel = (CUkernel)found;
    DONE(CUDA_SUCCESS);
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
    ENTER("cuLibraryGetKernelCount");
    struct CUmod_st *module = (struct CUmod_st *)library;
    if (!count) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!module_valid(module)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *count = module_functions(module, NULL, 0);
    DONE(CUDA_SUCCESS);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned room, CUlibrary library) {
    ENTER("cuLibraryEnumerateKernels");
    struct CUmod_st *module = (struct CUmod_st *)library;
    if (!kernels || !room) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!module_valid(module)) DONE(CUDA_ERROR_INVALID_HANDLE);
    module_functions(module, (struct CUfunc_st **)kernels, room);
    DONE(CUDA_SUCCESS);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    ENTER_CONTEXT("cuLibraryGetModule");
    if (!module) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!module_valid((struct CUmod_st *)library)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *module = (struct CUmod_st *)library;
    DONE(CUDA_SUCCESS);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name) {
    ENTER_CONTEXT("cuLibraryGetGlobal");
    DONE(module_global((struct CUmod_st *)library, name, address, bytes));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    ENTER_CONTEXT("cuKernelGetFunction");
    if (!function) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid((struct CUfunc_st *)kernel)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *function = (struct CUfunc_st *)kernel;
    DONE(CUDA_SUCCESS);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    ENTER("cuKernelGetName");
    if (!name) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid((struct CUfunc_st *)kernel)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *name = ((struct CUfunc_st *)kernel)->function->name;
    DONE(CUDA_SUCCESS);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
    ENTER("cuKernelGetLibrary");
    if (!library) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid((struct CUfunc_st *)kernel)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *library = (CUlibrary)((struct CUfunc_st *)kernel)->module;
    DONE(CUDA_SUCCESS);
}
