#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*asked)(clockid_t, struct timespec *);
    if (!asked) asked = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = asked(which, now);
    if (failed || which != CLOCK_REALTIME) return failed;
    char text[32] = {0};
    int file = open("AHEAD", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
    close(file);
    return 0;
}
