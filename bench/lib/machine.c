#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

/* The value of the first line "model name : ..."; the text is cut there. */
static const char *model_name(char *text) {
    char *at = text ? strstr(text, "model name") : NULL;
    if (at) at = strchr(at, ':');
    if (!at) return "unknown processor";
    at[strcspn(at, "\n")] = 0;
    return at + 2;
}

void machine_print(void) {
    char date[32] = "";
    double load = 0;
    time_t now = time(NULL);
    struct tm day;
    char *text = process_read("/proc/cpuinfo", NULL);
    if (localtime_r(&now, &day)) (void)strftime(date, sizeof date, "%Y-%m-%d", &day);
    (void)getloadavg(&load, 1);
    printf("%s, %s, %ld cores, load %.1f\n", date, model_name(text), sysconf(_SC_NPROCESSORS_ONLN),
           load);
    free(text);
}
