/* A wall clock that a test can set, put under an unchanged program with LD_PRELOAD.
 *
 * CLOCK_OFFSET_FILE names a file of 8 bytes: how many seconds the wall clock is ahead, in the
 * machine's order of bytes. It is looked at for every reading. All other clocks stay true.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static const volatile int64_t *offset_seconds;

__attribute__((constructor)) static void begin(void)
{
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        abort();
    offset_seconds = mmap(NULL, sizeof *offset_seconds, PROT_READ, MAP_SHARED, fd, 0);
    if (offset_seconds == MAP_FAILED)
        abort();
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = real_clock_gettime(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += *offset_seconds;
    return result;
}
